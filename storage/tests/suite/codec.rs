//! Keys sort as their parts do, values come back as they went in, and no bytes make a reader panic.

use dolomedes_storage::codec::{
    Decoder, Encoder,
    key::{KeyBuilder, KeyReader, successor},
};
use proptest::{collection::vec, prelude::*};

type Parts = (u8, Vec<u8>, u32, Vec<u8>, u64, u128);

/// Few different bytes, and zeros and 0xff among them, so that escapes and common prefixes are frequent.
fn string() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(0u8), Just(1), Just(2), Just(0xfe), Just(0xff), any::<u8>()], 0..6)
}

fn parts() -> impl Strategy<Value = Parts> {
    (0..3u8, string(), 0..3u32, string(), prop_oneof![0..3u64, any::<u64>()], any::<u128>())
}

fn key((a, b, c, d, e, f): &Parts) -> Vec<u8> {
    KeyBuilder::new().u8(*a).bytes(b).u32(*c).bytes(d).u64(*e).u128(*f).build()
}

fn read(bytes: &[u8]) -> Result<Parts, dolomedes_storage::codec::DecodeError> {
    let mut reader = KeyReader::new(bytes);
    let parts =
        (reader.u8()?, reader.bytes()?, reader.u32()?, reader.bytes()?, reader.u64()?, reader.u128()?);
    reader.finish()?;
    Ok(parts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn keys_sort_as_their_parts(one in parts(), other in parts()) {
        prop_assert_eq!(key(&one).cmp(&key(&other)), one.cmp(&other));
    }

    #[test]
    fn keys_come_back(one in parts()) {
        prop_assert_eq!(read(&key(&one)), Ok(one));
    }

    #[test]
    fn no_bytes_make_the_key_reader_panic(bytes in vec(any::<u8>(), 0..80)) {
        if let Ok(parts) = read(&bytes) {
            prop_assert_eq!(key(&parts), bytes, "only what a builder makes is read");
        }
    }

    #[test]
    fn the_successor_ends_the_prefix(prefix in string(), rest in string(), other in string()) {
        let extended = [&prefix[..], &rest].concat();
        match successor(&prefix) {
            Some(next) => {
                prop_assert!(extended < next);
                prop_assert!(other.starts_with(&prefix) || other < prefix || other >= next);
            }
            None => prop_assert!(prefix.iter().all(|&byte| byte == 0xff)),
        }
    }

    #[test]
    fn values_come_back(
        a in any::<u64>(), b in string(), c in ".{0,8}", d in any::<Option<u64>>(),
        e in vec(any::<u32>(), 0..5), f in any::<u128>(), g in any::<bool>(),
    ) {
        let mut encoder = Encoder::versioned(3);
        encoder.uint(a).bytes(&b).str(&c).option(d, |it, value| { it.uint(value); });
        encoder.list(&e, |it, item| { it.uint(u64::from(*item)); }).u128(f).bool(g).raw(b"end");
        let bytes = encoder.finish();
        let mut decoder = Decoder::new("value", &bytes);
        prop_assert_eq!(decoder.u8(), Ok(3));
        prop_assert_eq!(decoder.uint(), Ok(a));
        prop_assert_eq!(decoder.bytes(), Ok(&b[..]));
        prop_assert_eq!(decoder.str(), Ok(&c[..]));
        prop_assert_eq!(decoder.option(Decoder::uint), Ok(d));
        prop_assert_eq!(decoder.list(Decoder::uint32), Ok(e));
        prop_assert_eq!(decoder.u128(), Ok(f));
        prop_assert_eq!(decoder.bool(), Ok(g));
        prop_assert_eq!(decoder.raw(3), Ok(&b"end"[..]));
        prop_assert_eq!(decoder.finish(), Ok(()));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in vec(any::<u8>(), 0..64), steps in vec(0..9u8, 1..12)) {
        let mut decoder = Decoder::new("garbage", &bytes);
        for step in steps {
            let before = decoder.remaining();
            let failed = match step {
                0 => decoder.u8().is_err(),
                1 => decoder.bool().is_err(),
                2 => decoder.uint().is_err(),
                3 => decoder.uint32().is_err(),
                4 => decoder.u128().is_err(),
                5 => decoder.bytes().is_err(),
                6 => decoder.str().is_err(),
                7 => decoder.option(Decoder::bytes).is_err(),
                _ => decoder.list(Decoder::bytes).is_err(),
            };
            prop_assert!(failed || decoder.remaining() < before, "progress is made");
        }
    }
}

#[test]
fn integers_of_more_than_64_bits_are_refused() {
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(Decoder::new("most", &most).uint(), Ok(u64::MAX));
    let more = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
    assert!(Decoder::new("more", &more).uint().is_err());
    assert!(Decoder::new("endless", &[0x80; 32]).uint().is_err());
}
