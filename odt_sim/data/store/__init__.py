"""Arrays by column, and stores: folders of memory-mapped arrays."""
