//! The identity of a canonical URL in the exact seen set: 128 bits, seeded per job. Not a content digest.

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// XXH3-128 of the canonical URL. With a random `seed` per job nobody can prepare URLs that collide with others' and so
/// suppress them.
pub fn fingerprint(canonical: &str, seed: u64) -> u128 {
    xxh3_128_with_seed(canonical.as_bytes(), seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_a_stored_format() {
        assert_eq!(fingerprint("", 0), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
        assert_ne!(fingerprint("http://a.test/", 1), fingerprint("http://a.test/", 2));
        assert_ne!(fingerprint("http://a.test/", 1), fingerprint("https://a.test/", 1));
    }
}
