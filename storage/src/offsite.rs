//! A copy of a data directory in an object store that is always a second or so old: what is left when the machine is lost.
//!
//! ```text
//!  a running store                                        <url>/
//!  every interval: fix a moment between two writes
//!    what its logs have that no object has     -->          packs/<writer>-<n>         content of segments
//!    what its catalog has that is new, and
//!    the names of all that                     -->          moments/<n>                created, never replaced
//!  when other checkpoints count: their files   -->          checkpoints/<writer>-<n>
//! ```
//!
//! 1. **A moment is one object**, and is there as soon as that is: its number is one more than that of the moment before. It says
//!    what changed since (`moment`); now and then one says everything, and those before it are not needed any more.
//! 2. **Fencing.** Moments are made by conditional puts: of two servers that write to one store, one makes moment `n`, and the
//!    other one is told that there is one (`shipper`), and writes nothing from then on.
//! 3. **Rows** go as they lie in the log, in pieces: the content of a segment for the rows from one offset to another
//!    (`pieces`, `send`). Small pieces are put together as they become many.
//! 4. **Checkpoints** go beside it, in their own time, and count from the moment on that names all of their files
//!    (`checkpoints`).
//! 5. What no moment names that a restore could begin from is removed some time after (`sweep`).
//!
//! Everything has its checksum in the object that names it. `docs/formats/offsite.md` gives every byte. Nothing here is waited for by
//! a write.

mod checkpoints;
mod identity;
mod moment;
mod ours;
mod pieces;
mod place;
mod restore;
mod send;
mod shipper;
mod sweep;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "decoders"))]
pub(crate) use moment::check as check_moment;
#[cfg(test)]
pub(crate) use moment::unit::sample as moment_sample;
pub use place::Place;
pub use restore::{Restored, restore};
pub use shipper::{ShipOptions, Shipped, Shipper, Step};
