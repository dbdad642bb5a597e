"""Metrics called together."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from syncfree._torchmetrics import require

require("syncfree.collections")
from torchmetrics import Metric  # noqa: E402
from torchmetrics import MetricCollection as _TorchMetricsCollection  # noqa: E402
from torchmetrics.utilities.data import _flatten_dict  # noqa: E402

from syncfree import _compute_groups, _joint_forward, _joint_sync  # noqa: E402

__all__ = ["MetricCollection"]


class MetricCollection(_TorchMetricsCollection):
    """Metrics that take the same inputs, called as one.

    It has the arguments and results of TorchMetrics' class of the same name, and differs in what a
    call costs:

    - Metrics that count the same, such as accuracy, precision and F1, form a compute group, which
      is updated once. Groups are found by classes and options; TorchMetrics compares the values of
      states, for which the host waits. One of syncfree's metrics does the update if possible.
    - ``forward`` processes a batch once for a whole group, not once for each metric.
    - ``compute`` in several processes reduces the states of all metrics in one collective for each
      dtype and reduction.

    Args:
        metrics: A metric, a collection, a sequence of these, or a dictionary of them by name.
        additional_metrics: More of them, if ``metrics`` is not a dictionary.
        prefix: Put before the names of the results.
        postfix: Put after them.
        compute_groups: Whether metrics that count the same share their states; or lists of names
            of metrics that share them, which are not checked.

    Raises:
        ValueError: If something is neither a metric nor a collection, a name occurs twice, or
            ``compute_groups`` has a name that is not in the collection.

    Reference:
        Detlefsen et al., "TorchMetrics - Measuring Reproducibility in PyTorch", Journal of Open
        Source Software 7(70), 2022.

    Example:
        >>> import torch
        >>> from syncfree import MetricCollection
        >>> from syncfree.classification import MulticlassAccuracy, MulticlassF1Score
        >>> metrics = MetricCollection(
        ...     [MulticlassAccuracy(num_classes=3), MulticlassF1Score(num_classes=3)], prefix="val/"
        ... )
        >>> preds, target = torch.tensor([2, 1, 0, 0]), torch.tensor([2, 1, 1, 0])
        >>> metrics.update(preds, target)
        >>> metrics.compute()
        {'val/MulticlassAccuracy': tensor(0.8333), 'val/MulticlassF1Score': tensor(0.7778)}
        >>> metrics.compute_groups
        {0: ['MulticlassAccuracy', 'MulticlassF1Score']}
    """

    # Groups are lists of names, leader first (see `_compute_groups`); a team is one of them.
    _alike: Sequence[list[str]] = ()  # groups by class and options
    _candidates: Sequence[list[str]] = _alike  # the same, split where a checkpoint differs
    _grouped: Mapping[str, Metric] = MappingProxyType({})  # the metrics when groups were formed

    def _init_compute_groups(self) -> None:
        """Called by TorchMetrics after metrics were added."""
        if self._groups:
            self._group_anew()
            return
        super()._init_compute_groups()
        if self._enable_compute_groups is True:
            # Metrics are, as a rule, still on the CPU at this time, where tensors can be compared.
            self._alike = self._candidates = _compute_groups.group_alike(self._modules)
        given = {name for names in self._groups.values() for name in names}
        for name in self._modules:  # TorchMetrics before 1.5 forgets these
            if name not in given:
                self._groups[len(self._groups)] = [name]
        self._grouped = dict(self._modules)

    def _group_what_is_there(self) -> None:
        """Groups anew if metrics came or went, by ``collection[name] = metric`` or ``del``, say."""
        now, before = self._modules, self._grouped
        # By identity: `==` of metrics gives a metric.
        is_same = all(map(operator.is_, now.values(), before.values()))
        if (is_same and now.keys() == before.keys()) or not self._enable_compute_groups:
            return
        if torch.compiler.is_dynamo_compiling():
            raise RuntimeError(
                "Metrics were added to the collection or removed: call it once before it is "
                "compiled, so that groups are formed."
            )
        self._group_anew()

    def _group_anew(self) -> None:
        """Keeps what is left of each group together, since it shares states; the rest is alone."""
        now, before = self._modules, self._grouped

        def left(groups: Iterable[Sequence[str]]) -> list[list[str]]:
            kept = ([n for n in names if n in now and now[n] is before.get(n)] for names in groups)
            return [names for names in kept if names]

        def with_others(groups: list[list[str]]) -> list[list[str]]:
            known = {name for names in groups for name in names}
            return groups + [[name] for name in now if name not in known]

        teams = left(self._groups.values())
        gone = [metric for name, metric in before.items() if now.get(name) is not metric]
        _compute_groups.unshare([*(now[names[0]] for names in teams), *gone])
        self._groups = dict(enumerate(with_others(teams)))
        self._groups_checked = self._enable_compute_groups is not True
        if self._enable_compute_groups is True:
            is_loaded = self._candidates is not self._alike
            told_apart = with_others(left(self._candidates))
            self._alike = _compute_groups.group_alike(now)
            self._candidates = told_apart if is_loaded else self._alike
        self._grouped = dict(now)

    def _form_groups(self) -> None:
        """Forms groups at the first batch, when it is known which metrics have counts already."""
        self._group_what_is_there()
        if self._groups_checked or not self._enable_compute_groups:
            return
        groups = list(self._teams_to_come())
        self._groups = dict(enumerate(groups))
        _compute_groups.unshare(self._modules[names[0]] for names in groups)
        self._groups_checked = True

    def _teams_to_come(self) -> Iterable[list[str]]:
        """The groups that the first batch will form, and may have formed in other processes."""
        if self._groups_checked or not self._enable_compute_groups:
            return ()
        loaded = self._candidates is not self._alike
        return (
            part
            for names in self._candidates
            for part in _compute_groups.split_by_history(self._modules, names, loaded)
        )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Splits groups of metrics that were saved with different states."""
        self._group_what_is_there()
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        if self._alike and any(key.startswith(prefix) for key in state_dict):
            self._candidates = _compute_groups.split_by_saved(
                self._modules, self._alike, state_dict, prefix
            )
            _compute_groups.unshare(self._modules.values())
            self._groups = {i: [name] for i, name in enumerate(self._modules)}
            self._groups_checked = False

    def _teams(self) -> Iterable[list[str]]:
        """The names of each group, leader first."""
        return self._groups.values() or ([name] for name in self._modules)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Adds a batch to all metrics.

        Args:
            *args: For every metric's ``update``.
            **kwargs: For those metrics whose ``update`` has an argument of that name.
        """
        self._form_groups()
        teams = [[self._modules[name] for name in team] for team in self._teams()]
        # Before any update, after which compiled code cannot look at signatures.
        taken = [_taken_by(team[0], kwargs) for team in teams]
        for (leader, *members), named in zip(teams, taken, strict=True):
            with _compute_groups.led(leader, members):
                leader.update(*args, **named)
            for member in members:
                _compute_groups.share(leader, member)
                member.__dict__["_computed"] = None
        self._state_is_copy = False

    @torch.jit.unused
    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Adds a batch to all metrics and returns their values for it alone.

        Args:
            *args: As for ``update``.
            **kwargs: As for ``update``.

        Returns:
            The values by name, with prefix and postfix.
        """
        self._form_groups()
        values: dict[str, Any] = {}
        for team in self._teams():
            metrics = [self._modules[name] for name in team]
            if len(metrics) > 1 and _joint_forward.applies(metrics):
                batch = _joint_forward.forward(metrics, args, _taken_by(metrics[0], kwargs))
            else:
                batch = [metric(*args, **_taken_by(metric, kwargs)) for metric in metrics]
            values.update(zip(team, batch, strict=True))
        self._state_is_copy = False
        return self._named(values)

    def compute(self) -> dict[str, Any]:
        """The values of all metrics for everything added since the last reset, by name."""
        self._compute_groups_create_state_ref()
        for team in self._teams():
            if getattr(self._modules[team[0]], "_is_replayed", False):
                for name in team:  # replays have changed the states without a call
                    self._modules[name]._computed = None
        states = _joint_sync.reduce_together(self._modules, self._teams_to_come())
        values: dict[str, Any] = {}
        errors: list[Exception] = []
        for name, metric in self._modules.items():
            try:
                with _joint_sync.synced(metric, states.get(name)):
                    values[name] = metric.compute()
            except Exception as error:
                # The other metrics are computed first, as in the other processes: all have to
                # call the same collectives in the same order.
                errors.append(error)
        if errors:
            raise _as_one(errors)
        return self._named(values)

    def reset(self) -> None:
        """Resets the states of all metrics to their defaults."""
        self._group_what_is_there()
        for team in self._teams():
            leader, *members = (self._modules[name] for name in team)
            for member in members:
                if _compute_groups.is_usual(member, "reset"):
                    _compute_groups.forget(leader, member)
                else:
                    member.reset()
            leader.reset()  # in place, now that it alone holds its states
        self._state_is_copy = False
        self._compute_groups_create_state_ref()
        if self._alike:  # nothing tells the metrics of a group apart any more
            self._candidates, self._groups_checked = self._alike, False

    def _compute_groups_create_state_ref(self, copy: bool = False) -> None:
        self._group_what_is_there()
        if not self._state_is_copy:
            for team in self._teams():
                leader, *members = (self._modules[name] for name in team)
                for member in members:
                    _compute_groups.share(leader, member, copy)
        self._state_is_copy = copy

    def _named(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values in the metrics' order, by name; a dictionary's entries keep their names."""
        _, ambiguous = _flatten_dict(values)
        result: dict[str, Any] = {}
        for name, metric in self._modules.items():
            value = values[name]
            if not isinstance(value, dict):
                result[name] = value
                continue
            prefix, postfix = (getattr(metric, part, None) or "" for part in ("prefix", "postfix"))
            stem = f"{name.replace(prefix, '').replace(postfix, '')}_" if ambiguous else ""
            if not getattr(metric, "_from_collection", False):
                prefix = postfix = ""
            for key, part in value.items():
                result[f"{prefix}{stem}{key}{postfix}"] = part
        return {self._set_name(name): value for name, value in result.items()}


def _as_one(errors: Sequence[Exception]) -> Exception:
    """The first error, or all of bad labels, a line for each: these are raised only once."""
    of_labels = [error for error in errors if type(error) is RuntimeError]
    if len(of_labels) > 1:
        return RuntimeError("\n".join(map(str, of_labels)))
    return (of_labels or errors)[0]


def _taken_by(metric: Metric, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keywords that the metric's update takes; without any, its signature is not read."""
    return metric._filter_kwargs(**kwargs) if kwargs else kwargs
