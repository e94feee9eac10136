"""The objects that cases share: one of each kind, made at its first use."""

from __future__ import annotations

import ctypes
from functools import cached_property

from fairlead.conformance.arrays import sizes
from fairlead.loader.ur.abi import UR

from .objects import COUNT, SIZE, URObjects
from .values import BufferValue


class World(URObjects):
    """One object of each kind. It lives as long as the library is open."""

    @cached_property
    def the_queue(self) -> int:
        """An in-order queue with profiling."""
        return self.queue("PROFILING_ENABLE")

    @cached_property
    def the_event(self) -> int:
        """An event, complete."""
        event = self.event(self.the_queue)
        self.ur.ok("urQueueFinish", self.the_queue)
        return event

    @cached_property
    def failed_event(self) -> int:
        """An event that has failed."""
        event = self.user_event()
        event.fail()
        return event.handle

    @cached_property
    def unbuilt_program(self) -> int:
        """A program from IL that is not built."""
        return self.il_program()

    @cached_property
    def the_kernel(self) -> int:
        """The kernel `store`."""
        return self.kernel()

    @cached_property
    def other_kernel(self) -> int:
        """A second kernel with the parameters of the first."""
        return self.kernel()

    @cached_property
    def empty_kernel(self) -> int:
        """A kernel without parameters."""
        return self.kernel("nothing")

    @cached_property
    def the_buffer(self) -> int:
        """A buffer of SIZE bytes."""
        return self.buffer()

    @cached_property
    def other_buffer(self) -> int:
        """Another buffer."""
        return self.buffer()

    @cached_property
    def mapped(self) -> int:
        """Where `the_buffer` is mapped."""
        place = ctypes.c_void_p()
        given = self.the_queue, self.the_buffer, True, UR["UR_MAP_FLAG_READ"], 0, SIZE
        self.ur.ok("urEnqueueMemBufferMap", *given, 0, None, None, place)
        return place.value or 0

    @cached_property
    def the_image(self) -> int:
        """A 2D image."""
        return self.image()

    @cached_property
    def other_image(self) -> int:
        """Another image of the same shape."""
        return self.image()

    @cached_property
    def the_sampler(self) -> int:
        """A sampler."""
        return self.sampler()

    @cached_property
    def the_usm(self) -> int:
        """A device allocation of SIZE bytes."""
        return self.usm()

    @cached_property
    def other_usm(self) -> int:
        """Another device allocation."""
        return self.usm()

    @cached_property
    def the_pool(self) -> int:
        """A pool."""
        return self.pool()

    @cached_property
    def open_command_buffer(self) -> int:
        """A command-buffer to which commands can be appended."""
        return self.command_buffer()

    @cached_property
    def closed_command_buffer(self) -> int:
        """A finalized command-buffer."""
        made = self.command_buffer()
        self.ur.ok("urCommandBufferFinalizeExp", made)
        return made

    @cached_property
    def updatable(self) -> tuple[int, int]:
        """A finalized updatable command-buffer with one launch of `store`, and that command."""
        self.ur.require("UR_DEVICE_INFO_COMMAND_BUFFER_UPDATE_CAPABILITIES_EXP")
        made, command = self.command_buffer(isUpdatable=True), ctypes.c_void_p()
        given = self.arguments(BufferValue(self.the_buffer), ctypes.c_int32(1))
        shape = 1, sizes(0), sizes(COUNT), None
        rest = 0, None, 0, None, 0, None, None, None, ctypes.byref(command)
        self.ur.ok(
            "urCommandBufferAppendKernelLaunchWithArgsExp",
            made,
            self.the_kernel,
            *shape,
            *given,
            *rest,
        )
        self.ur.ok("urCommandBufferFinalizeExp", made)
        return made, command.value or 0
