"""How long the steps of the modelled engine take, one at a time and many in closed form."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """Times in seconds. A step takes max(step + context * tokens read, token * tokens computed) + image * images.

    The first operand is bound by memory bandwidth, the second by arithmetic; images go through the vision encoder in
    the step in which their sequence enters. `preprocess` is spent per image before the queue, one image at a time.
    """

    step: float
    context: float
    token: float
    image: float
    preprocess: float

    def faster(self, speed: float) -> "Costs":
        """The same engine with all times divided by `speed`."""
        return Costs(
            self.step / speed,
            self.context / speed,
            self.token / speed,
            self.image / speed,
            self.preprocess / speed,
        )

    def one_step(self, context: int, tokens: int, images: int) -> float:
        """Seconds of a step that reads `context` KV tokens, computes `tokens` and encodes `images`."""
        return max(self.step + self.context * context, self.token * tokens) + self.image * images

    def decode_steps(self, steps: int, context: int, running: int) -> float:
        """Seconds of `steps` steps in which `running` sequences gain a token each; they hold `context` tokens before.

        Step i (from 1) reads context + running * i tokens, so the sum is that of an arithmetic series, beside a
        constant for the first steps if those are bound by arithmetic.
        """
        computed = self.token * running
        bound = 0  # steps that are bound by arithmetic: they come first, since the context only grows
        if self.step + self.context * (context + running) < computed:
            growth = self.context * running
            bound = steps if growth <= 0 else min(steps, int((computed - self.step - self.context * context) / growth))
        read = steps - bound
        series = running * (read * bound + read * (read + 1) // 2)
        return bound * computed + read * (self.step + self.context * context) + self.context * series

    def steps_within(self, seconds: float, most: int, context: int, running: int) -> int:
        """The largest number of such steps, up to `most`, that lasts no longer than `seconds`."""
        if self.decode_steps(most, context, running) <= seconds:
            return most
        fits, too_many = 0, most
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self.decode_steps(middle, context, running) <= seconds:
                fits = middle
            else:
                too_many = middle
        return fits
