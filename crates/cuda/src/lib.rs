//! A real GPU behind the driver trait, through cudarc.
