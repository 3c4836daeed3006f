//! Makes the Rust code of the services in `proto`. The compiler is protox, so that no `protoc` has to be installed.

use std::error::Error;

/// The files of services, below `proto`.
const FILES: [&str; 1] = ["dolomedes/peer/v1/peer.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    tonic_prost_build::configure()
        // The connections are our own, over hyper.
        .build_transport(false)
        // A payload is a slice of what was received, not a copy.
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
