//! The component shell.
