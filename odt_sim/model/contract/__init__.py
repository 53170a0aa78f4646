"""What a trainable file promises: signatures, manifest, names, identity."""
