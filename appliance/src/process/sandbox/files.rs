//! What may be done to files and over TCP (Landlock), by the calling thread and those it starts.
//!
//! In: what is needed. Out: a domain that the thread never leaves; threads that run already are not
//! in it. Files that are open stay open. What the kernel is too old for is left out; a kernel
//! without any of it is reported.

use super::{Needs, Part};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, make_bitflags,
    path_beneath_rules,
};

/// The newest whose rights are dealt with: files, TCP, and requests to devices.
const NEWEST: ABI = ABI::V5;

/// Gives everything up but what is needed.
pub(super) fn restrict(needs: &Needs) -> Part {
    match enter(needs) {
        Ok(RestrictionStatus { ruleset: RulesetStatus::NotEnforced, landlock, .. }) => {
            Part::Off(match landlock {
                LandlockStatus::NotImplemented => {
                    "this kernel has no Landlock, or a seccomp profile (of a container) refuses it"
                        .to_owned()
                }
                _ => "Landlock is not switched on: lsm= on the kernel's command line".to_owned(),
            })
        }
        Ok(_) => Part::On,
        Err(error) => Part::Off(error.to_string()),
    }
}

fn enter(needs: &Needs) -> Result<RestrictionStatus, RulesetError> {
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let remove = make_bitflags!(AccessFs::{ReadDir | RemoveFile | RemoveDir});
    let drive = make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | IoctlDev});
    // What is not there needs no rule.
    let beneath = |paths, rights: BitFlags<AccessFs>| path_beneath_rules(paths, rights);
    Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        // No rule follows: no thread of ours ever connects or binds.
        .handle_access(AccessNet::from_all(NEWEST))?
        .create()?
        .add_rules(beneath(&needs.read, read))?
        .add_rules(beneath(&needs.remove_in, remove))?
        .add_rules(beneath(&needs.drive, drive))?
        .restrict_self()
}
