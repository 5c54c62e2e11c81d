"""One image as data URLs of several sizes, turned where it must be; each made when it is asked for, the newest kept."""

from llm_ocr.engines.model.tools import ImageTools
from llm_ocr.models.profile import Frame
from llm_ocr.types import EncodedImage


class Images:
    """`url` is the image as it is, b"" where it has not been made."""

    def __init__(self, image: EncodedImage, url: bytes, tools: ImageTools) -> None:
        self._given = image
        self._tools = tools
        self._upright: dict[int, EncodedImage] = {0: image}
        self._whole = url
        self._scale, self._scaled, self._frame = 1.0, b"", Frame()
        self._made = 0  # the rotation that the URLs are of
        self.rotation = 0  # degrees clockwise

    def turn(self, degrees: int) -> None:
        """From now on the image is turned clockwise by so many degrees more."""
        self.rotation = (self.rotation + degrees) % 360

    def upright(self, rotation: int) -> EncodedImage | None:
        """The image as it was sent with that rotation; None where it is as it was given."""
        return self._upright.get(rotation) if rotation else None

    async def url(self, scale: float) -> bytes:
        """The data URL of the image with its sides multiplied by `scale`. Raises `PageFailure`."""
        if self._made != self.rotation:
            await self._turn()
        image = self._upright[self.rotation]
        if scale == 1.0:
            if not self._whole:
                self._whole = await self._tools.url(image)
            return self._whole
        if scale != self._scale:
            small, self._scaled = await self._tools.resized(image, scale)
            self._scale, self._frame = scale, Frame(small.width, small.height)
        return self._scaled

    def frame(self, scale: float) -> Frame:
        """The size in pixels of the image whose URL was asked for last, at that scale."""
        if scale != 1.0:
            return self._frame
        image = self._upright[self._made]
        return Frame(image.width, image.height)

    async def _turn(self) -> None:
        if self.rotation in self._upright:
            self._whole = b""
        else:
            turned, self._whole = await self._tools.turned(self._given, self.rotation)
            self._upright[self.rotation] = turned
        self._made = self.rotation
        self._scale, self._scaled = 1.0, b""
