"""From traced functions to files: signatures, conversion, the Flex flavour."""
