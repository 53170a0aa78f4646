"""What the devices of a fleet are like: their classes, what work costs them, when they are available, their batteries."""
