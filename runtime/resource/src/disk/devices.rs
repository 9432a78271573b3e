//! The devices of the machine, each with a scheduler of its own, and which of them a file is on.
//!
//! The operating system tells devices apart by numbers. Where it does not tell the truth (a file system over two disks, two
//! disks that share one cable), or one device is to stand for two in a measurement, a directory or a file can be declared to
//! be on a device of its own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

use super::{DISK_CONCURRENCY, DiskScheduler};
use crate::memory::Memory;

/// Files of which it is remembered on which device they are.
const PLACES_MAX: usize = 1_024;

/// How a device is known.
#[derive(Debug, PartialEq)]
enum Identity {
    Number(u64),
    Place(PathBuf),
}

#[derive(Default)]
struct Known {
    devices: Vec<(Identity, Arc<DiskScheduler>)>,
    places: HashMap<PathBuf, Arc<DiskScheduler>>,
}

/// See the module.
pub struct Disks {
    memory: Arc<Memory>,
    /// Where the logs are.
    data: Arc<DiskScheduler>,
    known: RwLock<Known>,
}

impl Disks {
    /// Of a machine whose data directory is this one.
    pub fn new(data: &Path, memory: &Arc<Memory>) -> Disks {
        let number = device_number(data);
        let scheduler = DiskScheduler::new("data", 0, concurrency(number), memory);
        Disks {
            memory: Arc::clone(memory),
            data: Arc::clone(&scheduler),
            known: RwLock::new(Known {
                devices: vec![(Identity::Number(number), scheduler)],
                places: HashMap::new(),
            }),
        }
    }

    /// That of the data directory.
    pub fn data(&self) -> &Arc<DiskScheduler> {
        &self.data
    }

    /// All that were used or declared, by their numbers.
    pub fn all(&self) -> Vec<Arc<DiskScheduler>> {
        let known = self.known.read();
        known
            .devices
            .iter()
            .map(|(_, device)| Arc::clone(device))
            .collect()
    }

    /// The one that a file is on, or will be.
    pub fn of(&self, file: &Path) -> Arc<DiskScheduler> {
        if let Some(device) = self.known.read().places.get(file) {
            return Arc::clone(device);
        }
        let number = device_number(file.parent().unwrap_or(file));
        let mut known = self.known.write();
        let declared = known.devices.iter().find(
            |(identity, _)| matches!(identity, Identity::Place(declared) if file.starts_with(declared)),
        );
        let found = declared.or_else(|| {
            let numbered = Identity::Number(number);
            known.devices.iter().find(|(identity, _)| *identity == numbered)
        });
        let device = match found {
            Some((_, device)) => Arc::clone(device),
            None => {
                let place = known.devices.len();
                let device = DiskScheduler::new(&name(number), place, concurrency(number), &self.memory);
                let added = (Identity::Number(number), Arc::clone(&device));
                known.devices.push(added);
                device
            }
        };
        if known.places.len() >= PLACES_MAX {
            known.places.clear();
        }
        known.places.insert(file.to_owned(), Arc::clone(&device));
        device
    }

    /// From now on a file, or what is in a directory, is on a device of its own.
    pub fn declare(&self, place: &Path, name: &str) -> Arc<DiskScheduler> {
        let mut known = self.known.write();
        let device = DiskScheduler::new(name, known.devices.len(), DISK_CONCURRENCY, &self.memory);
        let added = (Identity::Place(place.to_owned()), Arc::clone(&device));
        known.devices.push(added);
        known.places.clear();
        device
    }
}

/// The number of the device that a directory is on, or the nearest one above it that there is.
fn device_number(directory: &Path) -> u64 {
    let found = directory
        .ancestors()
        .find_map(|place| std::fs::metadata(place).ok());
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        found.map_or(0, |metadata| metadata.dev())
    }
    #[cfg(not(unix))]
    {
        let _ = found;
        0
    }
}

/// Where Linux describes a device.
fn described(number: u64) -> PathBuf {
    #[cfg(unix)]
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    #[cfg(not(unix))]
    let (major, minor) = (0, number);
    PathBuf::from(format!("/sys/dev/block/{major}:{minor}"))
}

fn name(number: u64) -> String {
    let link = std::fs::read_link(described(number)).ok();
    let name = link.and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| format!("device {number:x}"))
}

/// Requests in flight, to begin with: with moving parts one, since others would only have them move to and fro. Disks of
/// virtual machines are said to have some whatever is below them, and are not believed.
fn concurrency(number: u64) -> usize {
    if ["vd", "xvd"]
        .iter()
        .any(|virtual_disk| name(number).starts_with(virtual_disk))
    {
        return DISK_CONCURRENCY;
    }
    let described = described(number);
    // A partition is below its disk.
    let places = [
        described.join("queue/rotational"),
        described.join("../queue/rotational"),
    ];
    let rotates = places
        .iter()
        .find_map(|place| std::fs::read_to_string(place).ok());
    match rotates.as_deref().map(str::trim) {
        Some("1") => 1,
        _ => DISK_CONCURRENCY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Resident;

    #[test]
    fn a_file_is_on_the_device_of_its_directory() {
        let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let disks = Disks::new(data.path(), &Memory::new(None, Resident::Unknown));
        let file = other.path().join("not there yet/file");
        assert_eq!(disks.of(&data.path().join("file")).name(), "data");
        assert_eq!(disks.of(&file).name(), "data", "the same file system");
        let second = disks.declare(other.path(), "second");
        assert!(Arc::ptr_eq(&disks.of(&file), &second));
        assert_eq!(disks.of(&data.path().join("file")).name(), "data");
        // The kernel's own files are on no disk.
        assert_ne!(disks.of(Path::new("/proc/self/status")).name(), "data");
        let third = disks.declare(&data.path().join("file"), "third");
        assert!(Arc::ptr_eq(&disks.of(&data.path().join("file")), &third));
        assert_eq!(disks.of(&data.path().join("another")).name(), "data");
        let names: Vec<String> = disks
            .all()
            .iter()
            .map(|device| device.name().to_owned())
            .collect();
        assert_eq!(
            (&names[..2], names[3].as_str()),
            (&["data".to_owned(), "second".to_owned()][..], "third")
        );
        assert_eq!(names.len(), 4);
    }
}
