"""Names of the environment by which who starts a program tells its processes of the dry run."""

# Where they leave what they recorded.
FOLDER = "DRYSTONE_DRY_RUN"
# After how many steps the program ends, 0 for never.
STEPS = "DRYSTONE_DRY_RUN_STEPS"
# What it reads back from the device.
VALUES = "DRYSTONE_DRY_RUN_VALUES"
# Which sizes that depend on values it gets: the least or the most; by the values, if not said.
SIZES = "DRYSTONE_DRY_RUN_SIZES"
# Bytes that a context may take, where the simulated one takes none.
CONTEXT = "DRYSTONE_DRY_RUN_CONTEXT"
