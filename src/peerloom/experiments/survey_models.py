"""The survey's three models, tensor by tensor, computed from their architectures' shapes.

A tensor's work is the multiplications that its layer makes with it for one sample; what only adds or looks up
(biases, normalisation, embeddings) counts as none. ResNet-50: He et al., CVPR 2016. BERT with both heads of
its pretraining, whose decoder is the word embedding: Devlin et al., NAACL 2019.
"""

from dataclasses import dataclass

from peerloom.kit.sync_model.layer_times import LayerTimes, layers_of_work

VOCABULARY, POSITIONS, SEQUENCE = 30_522, 512, 64


@dataclass(frozen=True)
class Tensor:
    """A parameter tensor: how many values, and multiplications a sample."""

    name: str
    parameters: int
    work: float


@dataclass(frozen=True)
class SurveyModel:
    """A model with the intensity and the local batch that the survey prints."""

    title: str
    intensity: float
    batch: int
    tensors: tuple[Tensor, ...]

    @property
    def parameters(self) -> int:
        """All of them."""
        return sum(tensor.parameters for tensor in self.tensors)

    def operations(self) -> float:
        """Of an iteration: intensity times parameters times batch, as the survey defines the intensity."""
        return self.intensity * self.parameters * self.batch

    def layers(self, compute_s: float) -> tuple[LayerTimes, ...]:
        """A layer a tensor, whose share of an iteration's `compute_s` is that of its work."""
        names = [tensor.name for tensor in self.tensors]
        counts = [tensor.parameters for tensor in self.tensors]
        return layers_of_work(names, counts, [tensor.work for tensor in self.tensors], compute_s)


def resnet50() -> SurveyModel:
    """25,557,032 parameters in 161 tensors, for pictures of 224 x 224."""
    tensors = _convolution("conv1", 3, 64, 7, 112)
    width, side = 64, 56
    for stage, blocks in enumerate((3, 4, 6, 3)):
        planes = 64 * 2**stage
        for block in range(blocks):
            name = f"layer{stage + 1}.{block}"
            halves = stage > 0 and block == 0
            tensors += _convolution(f"{name}.conv1", width, planes, 1, side)
            side = side // 2 if halves else side
            tensors += _convolution(f"{name}.conv2", planes, planes, 3, side)
            tensors += _convolution(f"{name}.conv3", planes, 4 * planes, 1, side)
            if block == 0:
                tensors += _convolution(f"{name}.downsample", width, 4 * planes, 1, side)
            width = 4 * planes
    tensors += _dense("fc", width, 1000, 1)
    return SurveyModel("ResNet-50", 470, 64, tuple(tensors))


def bert_base() -> SurveyModel:
    """110,106,428 parameters: 12 layers of width 768."""
    return SurveyModel("BERT-Base", 249, 64, _bert(12, 768))


def bert_large(batch: int = 8) -> SurveyModel:
    """336,226,108 parameters: 24 layers of width 1,024."""
    return SurveyModel("BERT-Large", 248, batch, _bert(24, 1024))


def _convolution(name: str, inputs: int, outputs: int, kernel: int, side: int) -> list[Tensor]:
    """A convolution without bias, whose output is `side` x `side`, and its batch normalisation."""
    weights = inputs * outputs * kernel**2
    normalised = [Tensor(f"{name}.bn.{part}", outputs, 0.0) for part in ("weight", "bias")]
    return [Tensor(f"{name}.weight", weights, float(weights * side**2)), *normalised]


def _dense(name: str, inputs: int, outputs: int, times: int, beside: float = 0.0) -> list[Tensor]:
    """A matrix that is used `times` times a sample, and its bias; `beside` is work without parameters."""
    weight = Tensor(f"{name}.weight", inputs * outputs, float(inputs * outputs * times) + beside)
    return [weight, Tensor(f"{name}.bias", outputs, 0.0)]


def _normalisation(name: str, width: int) -> list[Tensor]:
    return [Tensor(f"{name}.{part}", width, 0.0) for part in ("weight", "bias")]


def _bert(layers: int, width: int) -> tuple[Tensor, ...]:
    tensors = [
        Tensor("embeddings.word", VOCABULARY * width, 0.0),
        Tensor("embeddings.position", POSITIONS * width, 0.0),
        Tensor("embeddings.type", 2 * width, 0.0),
        *_normalisation("embeddings.norm", width),
    ]
    # Each query meets each key, and each row of weights each value.
    meeting = float(SEQUENCE**2 * width)
    for number in range(layers):
        name = f"layer{number}"
        tensors += _dense(f"{name}.query", width, width, SEQUENCE)
        tensors += _dense(f"{name}.key", width, width, SEQUENCE, meeting)
        tensors += _dense(f"{name}.value", width, width, SEQUENCE, meeting)
        tensors += _dense(f"{name}.output", width, width, SEQUENCE)
        tensors += _normalisation(f"{name}.norm1", width)
        tensors += _dense(f"{name}.up", width, 4 * width, SEQUENCE)
        tensors += _dense(f"{name}.down", 4 * width, width, SEQUENCE)
        tensors += _normalisation(f"{name}.norm2", width)
    tensors += _dense("pooler", width, width, 1)
    tensors += _dense("head.transform", width, width, SEQUENCE)
    tensors += _normalisation("head.norm", width)
    # The decoder's weights are the word embedding's, whose gradient is whole at the end of the backward pass.
    tensors += [Tensor("head.decoder.bias", VOCABULARY, float(VOCABULARY * width * SEQUENCE))]
    tensors += _dense("head.next", width, 2, 1)
    return tuple(tensors)
