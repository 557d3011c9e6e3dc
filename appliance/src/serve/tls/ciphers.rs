//! `ssl_ciphers`: OpenSSL's names for what the library speaks of TLS 1.2. TLS 1.3 has none to choose,
//! as in memcached.

use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};

/// Leaves of the suites of TLS 1.2 those that `list` names: words with `:`, `,` or a blank between
/// them, each a suite's name, a part of one (`ECDHE`, `AESGCM`), or several parts with `+` between
/// them; `!` or `-` before a word takes away what it names. Words for suites that should not be used any
/// more name nothing.
pub(super) fn keep(suites: &mut Vec<SupportedCipherSuite>, list: &str) {
    let words: Vec<&str> = list.split([':', ',', ' ']).filter(|w| !w.is_empty()).collect();
    let mut any = false;
    suites.retain(|suite| {
        if !is_1_2(suite) {
            return true;
        }
        let name = openssl_name(suite);
        let mut kept = false;
        for word in &words {
            match word.strip_prefix(['!', '-']) {
                Some(word) if names(word, &name) => {
                    kept = false;
                    if word_is_final(words.as_slice(), word) {
                        return false;
                    }
                }
                None if names(word, &name) => kept = true,
                _ => {}
            }
        }
        any |= kept;
        kept
    });
    if !any {
        suites.clear();
    }
}

/// Whether a word is taken away for good (`!`).
fn word_is_final(words: &[&str], word: &str) -> bool {
    words.iter().any(|w| w.strip_prefix('!') == Some(word))
}

fn is_1_2(suite: &SupportedCipherSuite) -> bool {
    let version: &SupportedProtocolVersion = suite.version();
    *version == version::TLS12
}

/// `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` is `ECDHE-RSA-AES128-GCM-SHA256` to OpenSSL.
fn openssl_name(suite: &SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    let name = name.trim_start_matches("TLS_").replace("_WITH_", "_");
    let name = name.replace("AES_", "AES").replace("POLY1305_SHA256", "POLY1305");
    name.replace('_', "-")
}

fn names(word: &str, suite: &str) -> bool {
    word == suite
        || word.split('+').all(|part| match part {
            "ALL" | "DEFAULT" | "HIGH" | "TLSv1.2" | "EECDH" | "kEECDH" | "kECDHE" => true,
            "AESGCM" => suite.contains("-GCM-"),
            "aECDSA" => suite.contains("-ECDSA-"),
            "aRSA" => suite.contains("-RSA-"),
            "AES" => suite.contains("-AES"),
            part => suite.split('-').any(|known| known == part),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::crypto::ring;

    fn kept(list: &str) -> Vec<String> {
        let mut suites = ring::default_provider().cipher_suites;
        keep(&mut suites, list);
        suites.iter().filter(|s| is_1_2(s)).map(openssl_name).collect()
    }

    #[test]
    fn suites_go_by_openssls_names() {
        assert_eq!(kept("ECDHE-RSA-AES128-GCM-SHA256"), ["ECDHE-RSA-AES128-GCM-SHA256"]);
        let all = kept("HIGH:!aNULL:!MD5");
        assert_eq!(all.len(), 6, "{all:?}");
        assert!(all.contains(&"ECDHE-ECDSA-CHACHA20-POLY1305".to_owned()), "{all:?}");
        assert_eq!(kept("ECDHE+AESGCM:!AES128:!ECDSA"), ["ECDHE-RSA-AES256-GCM-SHA384"]);
        assert_eq!(kept("ECDHE:-RSA").len(), 3);
        assert_eq!(kept("!RSA:ECDHE").len(), 3, "for good");
    }

    #[test]
    fn what_names_nothing_leaves_nothing() {
        let mut suites = ring::default_provider().cipher_suites;
        keep(&mut suites, "RC4-SHA:DES-CBC3-SHA");
        assert!(suites.is_empty());
    }
}
