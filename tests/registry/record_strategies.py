"""Hypothesis strategies for records of the schema topic."""

from __future__ import annotations

from hypothesis import strategies as st

from odradek.registry.compatibility.levels import CompatibilityLevel
from odradek.registry.configs import Config
from odradek.registry.metadata import Metadata
from odradek.registry.modes import Mode
from odradek.registry.records import (
    ClearSubjectRecord,
    ConfigRecord,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    Record,
    SchemaRecord,
    SchemaTombstone,
)
from odradek.registry.rules import Rule, RuleKind, RuleMode, RuleSet
from odradek.registry.schemas.parsed import Reference

texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=8)
subjects = st.sampled_from(["a", "b", ":.ctx:a", ":.ctx:b", ":.other:a"])
versions = st.integers(1, 4)
ids = st.integers(0, 6)


def sorted_pairs(
    values: st.SearchStrategy[str],
) -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    """Return sorted entries with unique keys."""
    return st.dictionaries(texts, values, max_size=3).map(lambda d: tuple(sorted(d.items())))


names = st.lists(texts, unique=True, max_size=3).map(lambda found: tuple(sorted(found)))

metadata = st.builds(
    Metadata,
    tags=st.dictionaries(texts, names, max_size=2).map(lambda d: tuple(sorted(d.items()))),
    properties=sorted_pairs(texts),
    sensitive=names,
)

rules = st.builds(
    Rule,
    name=texts,
    doc=st.none() | texts,
    kind=st.sampled_from(RuleKind),
    mode=st.sampled_from(RuleMode),
    type=st.none() | texts,
    tags=names,
    params=sorted_pairs(texts),
    expr=st.none() | texts,
    on_success=st.none() | texts,
    on_failure=st.none() | texts,
    disabled=st.booleans(),
)

rule_lists = st.lists(rules, max_size=2).map(tuple)

rule_sets = st.builds(
    RuleSet,
    migration=rule_lists,
    domain=rule_lists,
    encoding=rule_lists,
    enable_at=st.none() | texts,
)

configs = st.builds(
    Config,
    alias=st.none() | texts,
    normalize=st.none() | st.booleans(),
    validate_fields=st.none() | st.booleans(),
    level=st.none() | st.sampled_from(CompatibilityLevel),
    group=st.none() | texts,
    default_metadata=st.none() | metadata,
    override_metadata=st.none() | metadata,
    default_rule_set=st.none() | rule_sets,
    override_rule_set=st.none() | rule_sets,
)

references = st.builds(Reference, texts, subjects, versions)

schema_records = st.builds(
    SchemaRecord,
    subject=subjects,
    version=versions,
    id=ids,
    text=texts,
    kind=st.sampled_from(["AVRO", "JSON", "PROTOBUF", "XML"]),
    references=st.lists(references, max_size=2).map(tuple),
    metadata=st.none() | metadata,
    rule_set=st.none() | rule_sets,
    deleted=st.booleans(),
    md5=st.none() | st.binary(min_size=16, max_size=16),
    unknown=st.dictionaries(st.just("future"), texts | st.integers(), max_size=1),
)

maxima = st.dictionaries(st.sampled_from([".", ".ctx"]), ids).map(
    lambda found: tuple(sorted(found.items()))
)

records: st.SearchStrategy[Record] = st.one_of(
    schema_records,
    st.builds(SchemaTombstone, subjects, versions),
    st.builds(ConfigRecord, st.none() | subjects, st.none() | configs),
    st.builds(ModeRecord, st.none() | subjects, st.none() | st.sampled_from(Mode)),
    st.builds(DeleteSubjectRecord, subjects, st.none() | versions),
    st.builds(ClearSubjectRecord, st.none() | subjects, st.booleans()),
    st.builds(ContextRecord, st.sampled_from([".ctx", ".other"]), st.booleans()),
    st.builds(NoopRecord, maxima),
)
