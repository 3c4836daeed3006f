//! The checksum around each payload. TCP's own is 16 bits and TLS's ends with the connection; this one also covers the
//! memory between.

use bytes::Bytes;

use super::bounds::MAX_FRAME;
use super::wire::Frame;

/// Why a payload cannot be sent or taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("a frame of {0} bytes is over the limit of {MAX_FRAME}; send it in pieces")]
    TooLarge(usize),
    #[error(
        "a frame of {length} bytes arrived damaged: its checksum is {found:08x} and should be {stated:08x}"
    )]
    Damaged { length: usize, stated: u32, found: u32 },
}

pub(super) fn seal(payload: Bytes) -> Result<Frame, FrameError> {
    if payload.len() > MAX_FRAME {
        return Err(FrameError::TooLarge(payload.len()));
    }
    Ok(Frame { crc32: crc32fast::hash(&payload), payload, ..Frame::default() })
}

/// The frame after which nothing comes; `gone` if nothing is taken any more either.
pub(super) fn last(gone: bool) -> Frame {
    Frame { last: true, gone, ..Frame::default() }
}

pub(super) fn open(frame: Frame) -> Result<Bytes, FrameError> {
    let length = frame.payload.len();
    if length > MAX_FRAME {
        return Err(FrameError::TooLarge(length));
    }
    let found = crc32fast::hash(&frame.payload);
    if found != frame.crc32 {
        return Err(FrameError::Damaged { length, stated: frame.crc32, found });
    }
    Ok(frame.payload)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    #[test]
    fn a_payload_over_the_limit_is_not_sealed() {
        assert!(seal(Bytes::from(vec![0; MAX_FRAME])).is_ok());
        let over = seal(Bytes::from(vec![0; MAX_FRAME + 1]));
        assert_eq!(over, Err(FrameError::TooLarge(MAX_FRAME + 1)));
    }

    proptest! {
        #[test]
        fn what_was_sealed_opens_as_it_was(payload in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let payload = Bytes::from(payload);
            let sent = seal(payload.clone()).unwrap().encode_to_vec();
            prop_assert!(sent.len() <= payload.len() + super::super::bounds::FRAME_OVERHEAD);
            prop_assert_eq!(open(Frame::decode(sent.as_slice()).unwrap()), Ok(payload));
        }

        #[test]
        fn no_flipped_bit_passes_for_the_payload(
            payload in proptest::collection::vec(any::<u8>(), 1..500), at in any::<prop::sample::Index>(), bit in 0..8_u8,
        ) {
            let payload = Bytes::from(payload);
            let mut sent = seal(payload.clone()).unwrap().encode_to_vec();
            let at = at.index(sent.len());
            sent[at] ^= 1 << bit;
            // Whatever it decodes to, it is never another payload.
            if let Ok(frame) = Frame::decode(sent.as_slice()) {
                let opened = open(frame);
                prop_assert!(opened.is_err() || opened == Ok(payload));
            }
        }
    }
}
