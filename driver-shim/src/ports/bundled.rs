//! DPDK's drivers where they travel with the program, as in the relocatable archive.
//!
//! A shared DPDK loads drivers from a directory whose path is fixed when DPDK is built. The archive
//! has its own beside the program, wherever it was unpacked: `bin/gnomon`, `lib/gnomon/pmds/`.

use std::path::{Path, PathBuf};

/// Where the program at this path would have its drivers. `None` for a path without directories.
pub fn drivers_beside(program: &Path) -> Option<PathBuf> {
    Some(program.parent()?.parent()?.join("lib/gnomon/pmds"))
}

/// The drivers that travel with this program, where there are any.
#[cfg(feature = "dpdk")]
pub(crate) fn drivers() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    drivers_beside(&program).filter(|dir| dir.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_move_with_the_program() {
        let beside = |program: &str| drivers_beside(Path::new(program));
        assert_eq!(beside("/opt/gnomon/bin/gnomon"), Some("/opt/gnomon/lib/gnomon/pmds".into()));
        assert_eq!(beside("/usr/bin/gnomon"), Some("/usr/lib/gnomon/pmds".into()));
        assert_eq!(beside("/"), None);
    }
}
