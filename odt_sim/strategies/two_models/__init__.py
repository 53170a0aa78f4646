"""A personal model beside the global one."""
