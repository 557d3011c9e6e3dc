//! What a parser, of whatever dialect, finds at the start of the input.

use super::command::Command;

/// What stands at the start of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A whole request of `used` bytes.
    Command {
        /// The command.
        command: Command<'a>,
        /// Bytes it took, line ends included.
        used: usize,
    },
    /// A refused request whose data block is still to come: throw away `skip` bytes behind the
    /// first `used`.
    Swallow {
        /// The refusal.
        command: Command<'a>,
        /// Bytes of the request without its data block.
        used: usize,
        /// Bytes of the data block, line end included where there is one.
        skip: usize,
    },
    /// Not a whole request yet: no use trying again below this many bytes.
    Incomplete {
        /// Bytes needed at least, from the start of the input.
        at_least: usize,
    },
    /// Cannot be followed any further: close the connection.
    Hopeless,
}
