//! Proof that the promises hold: the simulator ([`sim`]) runs whole crawls of the real cores on simulated time, disk and web
//! from one seed, and the invariants ([`invariant`]) watch them. Drills on real processes are not here yet.

pub mod invariant;
pub mod sim;
