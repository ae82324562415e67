//! What administrators write: pools, reservations, configuration, nodes and namespaces (`calico.md` 1.1 to 1.3).
//!
//! Their forms, defaults and rules, and the operations on them. It does not know how addresses are chosen.
