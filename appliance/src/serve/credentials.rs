//! Who may authenticate: the file of `-Y`, read at the start and again at each SIGHUP.
//!
//! In: a file of lines `user:password`, as memcached takes it. Out: [`Credentials`], shared by
//! every TCP thread, which answer whether a client's words are among them. A file that cannot be
//! read, or not be understood, is refused with its reason, and what was read before stays.

use dataplane::commands::login::Users;
use parking_lot::RwLock;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use subtle::{Choice, ConstantTimeEq};

/// Most users: memcached's limit.
const USERS_MAX: usize = 8;
/// Longest line without its end: memcached's limit.
const LINE_MAX_BYTES: usize = 255;
/// The longest file that can be right, and one byte more to show.
const FILE_MAX_BYTES: usize = USERS_MAX * (LINE_MAX_BYTES + 2) + 1;

/// Rights that must not be set: of others, and to write of the group. A group that may read can be
/// the server's.
const OTHERS: u32 = 0o027;

/// Why the file was not taken.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum CredentialsError {
    #[error("cannot read the authentication file {path}: {source}; check -Y and the file's rights")]
    Read { path: PathBuf, source: io::Error },
    #[error("the authentication file {path}: line {line} is not user:password")]
    Malformed { path: PathBuf, line: usize },
    /// A word that no client can send: it ends at a blank.
    #[error(
        "the authentication file {path}: line {line} has a blank in the user: no client could log in with it"
    )]
    Blank { path: PathBuf, line: usize },
    /// A line that memcached would cut.
    #[error("the authentication file {path}: line {line} has more than {LINE_MAX_BYTES} bytes")]
    LineTooLong { path: PathBuf, line: usize },
    /// Users that memcached would ignore.
    #[error("the authentication file {path} has more than {USERS_MAX} users")]
    TooMany { path: PathBuf },
}

/// The users and their passwords.
#[derive(Debug)]
pub struct Credentials {
    path: PathBuf,
    users: RwLock<Vec<Words>>,
}

impl Credentials {
    /// Reads the file.
    ///
    /// # Errors
    /// [`CredentialsError`].
    pub fn load(path: &Path) -> Result<Self, CredentialsError> {
        Ok(Self { path: path.to_owned(), users: RwLock::new(read(path)?) })
    }

    /// Reads the file again.
    ///
    /// # Errors
    /// [`CredentialsError`]; then those that were known still are.
    pub fn reload(&self) -> Result<(), CredentialsError> {
        // A FIFO would be waited for, and meanwhile nothing else is looked after.
        if fs::metadata(&self.path).is_ok_and(|there| !there.is_file()) {
            let source = io::Error::other("it is no file, and is read at the start alone");
            return Err(CredentialsError::Read { path: self.path.clone(), source });
        }
        let users = read(&self.path)?;
        *self.users.write() = users;
        Ok(())
    }
}

impl Users for Credentials {
    /// Whether the file has this user with this password. Takes the same time for every pair of
    /// words that could be in a file.
    fn knows(&self, user: &[u8], password: &[u8]) -> bool {
        let Some(asked) = Words::new(user, password) else { return false };
        let users = self.users.read();
        users.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(&asked)).into()
    }
}

/// User, line end, password, padded to one length, so that comparing shows nothing of theirs.
struct Words {
    bytes: [u8; LINE_MAX_BYTES],
    len: u64,
}

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Words(…)")
    }
}

impl Words {
    /// `None` when they are longer than a line of a file can be.
    fn new(user: &[u8], password: &[u8]) -> Option<Self> {
        let len = user.len() + 1 + password.len();
        let mut bytes = [0; LINE_MAX_BYTES];
        let text = user.iter().chain(b"\n").chain(password);
        bytes.get_mut(..len)?.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        Some(Self { bytes, len: len as u64 })
    }

    fn ct_eq(&self, other: &Self) -> Choice {
        self.bytes.ct_eq(&other.bytes) & self.len.ct_eq(&other.len)
    }
}

fn read(path: &Path) -> Result<Vec<Words>, CredentialsError> {
    let mut text = Vec::new();
    let mode = File::open(path)
        .and_then(|f| {
            let mode = f.metadata()?.mode();
            f.take(FILE_MAX_BYTES as u64).read_to_end(&mut text)?;
            Ok(mode)
        })
        .map_err(|source| CredentialsError::Read { path: path.to_owned(), source })?;
    let users = parse(&text, path)?;
    if users.is_empty() {
        tracing::warn!(
            "the authentication file {} has no users: nobody can log in",
            path.display()
        );
    }
    if mode & OTHERS != 0 {
        let mode = mode & 0o777;
        tracing::warn!(
            "the authentication file {}: its mode is {mode:o}, so that others read or change it: chmod 600 it",
            path.display()
        );
    }
    Ok(users)
}

fn parse(text: &[u8], path: &Path) -> Result<Vec<Words>, CredentialsError> {
    let path = || path.to_owned();
    let mut users = Vec::new();
    if text.is_empty() {
        return Ok(users);
    }
    for (n, line) in text.strip_suffix(b"\n").unwrap_or(text).split(|&b| b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if n == USERS_MAX {
            return Err(CredentialsError::TooMany { path: path() });
        }
        let mut parts = line.splitn(2, |&b| b == b':');
        let (Some(user), Some(password)) = (parts.next(), parts.next()) else {
            return Err(CredentialsError::Malformed { path: path(), line: n + 1 });
        };
        if user.contains(&b' ') {
            return Err(CredentialsError::Blank { path: path(), line: n + 1 });
        }
        let words = Words::new(user, password);
        users.push(
            words.ok_or_else(|| CredentialsError::LineTooLong { path: path(), line: n + 1 })?,
        );
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::machine::tests::Tree;

    fn parsed(text: &str) -> Result<Credentials, String> {
        let users = parse(text.as_bytes(), Path::new("F")).map_err(|e| e.to_string())?;
        Ok(Credentials { path: PathBuf::new(), users: RwLock::new(users) })
    }

    #[test]
    fn users_are_known_by_both_their_words() {
        let c = parsed("u:p\nlong:secret\r\ncolons:a:b\nempty:\nblanks:a b \nlast:noeol").unwrap();
        for (user, password) in [
            ("u", "p"),
            ("long", "secret"),
            ("colons", "a:b"),
            ("empty", ""),
            ("blanks", "a b "),
            ("last", "noeol"),
        ] {
            assert!(c.knows(user.as_bytes(), password.as_bytes()), "{user}");
        }
        for (user, password) in [
            ("u", "secret"),
            ("u", "P"),
            ("U", "p"),
            ("u", "p\0"),
            ("colons:a", "b"),
            ("", ""),
            ("blanks a", "b "),
        ] {
            assert!(!c.knows(user.as_bytes(), password.as_bytes()), "{user} {password}");
        }
        assert!(!c.knows(&[b'u'; 300], b"p"));
        assert!(!parsed("").unwrap().knows(b"u", b"p"));
    }

    #[test]
    fn the_longest_line_is_memcacheds() {
        let c = parsed(&format!("u:{}\n", "x".repeat(253))).unwrap();
        assert!(c.knows(b"u", &[b'x'; 253]));
        let said = parsed(&format!("a:b\nu:{}\n", "x".repeat(254))).unwrap_err();
        assert_eq!(said, "the authentication file F: line 2 has more than 255 bytes");
    }

    #[test]
    fn what_cannot_be_understood_is_told_by_line() {
        for (text, said) in [
            ("nocolon\n", "the authentication file F: line 1 is not user:password"),
            ("u:p\n\n", "the authentication file F: line 2 is not user:password"),
            ("\n", "the authentication file F: line 1 is not user:password"),
            (
                "u:p\na b:p\n",
                "the authentication file F: line 2 has a blank in the user: no client could log in with it",
            ),
        ] {
            assert_eq!(parsed(text).unwrap_err(), said);
        }
        assert!(parsed(&"u:p\n".repeat(8)).is_ok());
        let said = parsed(&"u:p\n".repeat(9)).unwrap_err();
        assert_eq!(said, "the authentication file F has more than 8 users");
    }

    #[test]
    fn a_broken_file_leaves_what_was_known() {
        let t = Tree::new("auth", &[("file", "u:old\n")]);
        let path = t.0.join("file");
        let c = Credentials::load(&path).unwrap();
        std::fs::write(&path, "broken").unwrap();
        assert!(c.reload().is_err() && c.knows(b"u", b"old"));
        std::fs::write(&path, "u:new\n").unwrap();
        c.reload().unwrap();
        assert!(c.knows(b"u", b"new") && !c.knows(b"u", b"old"));
        std::fs::write(&path, "u:p\n".repeat(10_000)).unwrap();
        assert!(c.reload().is_err());
        let missing = Credentials::load(&t.0.join("none")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the authentication file "), "{missing}");
    }

    #[test]
    fn no_secret_is_printed() {
        assert!(!format!("{:?}", parsed("u:p4ss\n").unwrap()).contains("p4ss"));
    }
}
