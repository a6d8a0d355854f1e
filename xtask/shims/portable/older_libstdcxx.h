// Included before all else, where what is compiled must run with the C and C++ libraries of 2018.
//
// Lives here: what newer headers take for granted that the library itself has, compiled into the
// object instead.

#pragma once

#include <new>
#include <sstream>

// The C library has it under its first version for ever: until 2.34 in another file, which PyTorch
// loads.
#if defined(__x86_64__)
__asm__(".symver dladdr, dladdr@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver dladdr, dladdr@GLIBC_2.17");
#endif

// In the library from GLIBCXX_3.4.26 on.
template std::basic_ostringstream<char>::basic_ostringstream();

#if __cplusplus >= 202002L && _GLIBCXX_USE_CXX11_ABI
// From GLIBCXX_3.4.29 on.
template std::string std::basic_stringbuf<char>::str() &&;
#endif

namespace std {

// From GLIBCXX_3.4.29 on.
__attribute__((noreturn, weak)) void __throw_bad_array_new_length() {
  throw bad_array_new_length();
}

}  // namespace std
