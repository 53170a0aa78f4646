"""LoRA: federated training of low-rank adapters on a fixed model.

Paper: Hu et al. 2022, LoRA: Low-Rank Adaptation of Large Language Models, section 4; averaged over devices as in Zhang et al.
2024, Towards Building the Federated GPT: Federated Instruction Tuning (FedIT).
Rule: FedAvg on the head and on the matrices A and B of each adapted layer, which uses the weights `W + A B`. All other
weights stay as exported, BatchNorm statistics included. The rule is meant for a pretrained model.
Travels: A, B and the head.
Stays: nothing; optimizer slots start fresh every round, and Dropout draws as in FedAvg.
Deviations: none from FedIT, which averages A and B separately; their product differs from the mean of the products
`A B`.
Unseen devices get the averaged adapters and head.
Hyper-parameters: `rank`, 1 or more, default 4. A Keras model is exported with adapters of this rank on its Dense,
EinsumDense, Embedding and convolution layers below the head, see `odt_sim.export.add_adapters`. A model that already
has adapters, such as `mini_gpt`, is trained unchanged, and `rank` must match theirs; a head with an adapter trains only
the adapter.
"""

from odt_sim.errors import StrategyError
from odt_sim.hyperparameters import count
from odt_sim.model.contract.manifest import LORA_RANK, is_adapter
from odt_sim.model.trainable import TrainableModel
from odt_sim.strategies.base import Strategy


class LoRA(Strategy):
    """FedAvg on low-rank adapters and the head.

    Attributes:
        rank: Rank of the adapters, at least 1.
    """

    rank: int = count(4, 1, search="int(interval(1,16))")

    def needed(self, model: TrainableModel) -> frozenset[str]:
        """Return the required capabilities, with adapters of the rank."""
        return super().needed(model) | {f"{LORA_RANK}{self.rank}"}

    def check(self, model: TrainableModel) -> None:
        """Check that the model trains only adapters of the rank and its head.

        Raises:
            StrategyError: It has no such adapters, or trains other parameters.
        """
        super().check(model)
        others = [p.name for p in model.parameters if p.moves and not is_adapter(p) and p.group != "head"]
        if others:
            raise StrategyError(
                f"strategy lora: trains adapters and the head, but the model {model.name} also trains {others[0]}; "
                "freeze it with layer.trainable = False, or choose another strategy"
            )
