"""Files of other tools: the roles of their signatures, their weights, their adaptation to the contract."""
