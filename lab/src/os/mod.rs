//! What does neither the standard library nor nix wrap? The only places of this crate with `unsafe`.

pub(crate) mod netdev;
pub(crate) mod process;
