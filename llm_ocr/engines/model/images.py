"""One image in several sizes, turned where it must be; each made when it is asked for, the newest kept."""

from llm_ocr.engines.model.tools import ImageTools
from llm_ocr.models.profile import Frame
from llm_ocr.types import EncodedImage


class Images:
    """A page's image, or a region's, as it is asked about."""

    def __init__(self, image: EncodedImage, tools: ImageTools) -> None:
        self._given = image
        self._tools = tools
        self._upright: dict[int, EncodedImage] = {0: image}
        self._resized: tuple[int, float, EncodedImage] | None = None  # of which rotation, and by what
        self.rotation = 0  # degrees clockwise

    def turn(self, degrees: int) -> None:
        """From now on the image is turned clockwise by so many degrees more."""
        self.rotation = (self.rotation + degrees) % 360

    def upright(self, rotation: int) -> EncodedImage | None:
        """The image as it was sent with that rotation; None where it is as it was given."""
        return self._upright.get(rotation) if rotation else None

    async def sized(self, scale: float) -> EncodedImage:
        """The image with its sides multiplied by `scale`. Raises `PageFailure`."""
        if self.rotation not in self._upright:
            self._upright[self.rotation] = await self._tools.turned(self._given, self.rotation)
        image = self._upright[self.rotation]
        if scale == 1.0:
            return image
        if self._resized is None or self._resized[:2] != (self.rotation, scale):
            self._resized = (self.rotation, scale, await self._tools.resized(image, scale))
        return self._resized[2]

    def frame(self, scale: float) -> Frame:
        """The size in pixels of the image that was asked for last, at that scale."""
        image = self._resized[2] if scale != 1.0 and self._resized else self._upright[self.rotation]
        return Frame(image.width, image.height)
