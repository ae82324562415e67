//! The suite that every adapter passes.
