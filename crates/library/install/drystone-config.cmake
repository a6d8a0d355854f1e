# find_package(drystone) gives the target drystone::drystone, from wherever this folder lies.
get_filename_component(drystone_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET drystone::drystone)
  add_library(drystone::drystone SHARED IMPORTED)
  set_target_properties(drystone::drystone PROPERTIES
    IMPORTED_LOCATION "${drystone_prefix}/lib/libdrystone.so.1"
    IMPORTED_SONAME "libdrystone.so.1"
    INTERFACE_INCLUDE_DIRECTORIES "${drystone_prefix}/include")
endif()
unset(drystone_prefix)
