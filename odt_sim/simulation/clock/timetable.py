"""The course of one round in simulated time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odt_sim.fleet.classes import Floats as Floats
from odt_sim.fleet.classes import Ids as Ids
from odt_sim.persistence.timeline import USED

Codes = NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Trips:
    """The work of devices from download to upload; all arrays are `[devices]` float64.

    Attributes:
        wait: Seconds until the device begins.
        download: Seconds to receive.
        compute: Seconds of all planned training and inference.
        upload: Seconds to send.
        leaves: Seconds from now after which the device must stop; infinite if it can finish.
    """

    wait: Floats
    download: Floats
    compute: Floats
    upload: Floats
    leaves: Floats

    @property
    def seconds(self) -> Floats:
        """Seconds until the update of all planned work has arrived."""
        return self.wait + self.download + self.compute + self.upload

    @property
    def received(self) -> Floats:
        """Seconds until the download is complete."""
        return self.wait + self.download


@dataclass(frozen=True, eq=False)
class Course:
    """The course of the devices in a round; all arrays are `[devices]`.

    Attributes:
        outcomes: The `odt_sim.persistence.timeline.Outcome` of each device.
        stops: Seconds after the start at which each device is done, whatever its outcome.
        computes: Seconds that each device computes, at most those of its trip.
        uploads: The part of its upload that each device sends, 0 to 1.
        downloads: The part of its download that each device receives, 0 to 1.
        units: Epochs or steps that each device finishes; those of the plan if it is not interrupted.
        end: Seconds after the start at which the server has its new model.
    """

    outcomes: Codes
    stops: Floats
    computes: Floats
    uploads: Floats
    downloads: Floats
    units: Ids
    end: float

    @property
    def used(self) -> NDArray[np.bool_]:
        """Whether the server accepts the device's update."""
        return np.isin(self.outcomes, USED)


def part(spent: Floats, whole: Floats) -> Floats:
    """Return the part of a duration, 0 to 1, that is over after `spent` seconds; 1 for a duration of 0 that has begun."""
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = np.where(whole > 0, spent / whole, np.where(spent >= 0, 1.0, 0.0))
    return np.asarray(np.clip(parts, 0.0, 1.0))
