"""The section `privacy`: what of the admitted is hashed, shortened or withheld."""

from typing import Annotated, Literal

from otel_bridge.config.setting import Section, setting
from otel_bridge.config.values import AllowList, LowerCase, MetadataKeys, ReadableFile

ALL = ("*",)
"""A list that holds nothing back."""

SourcePaths = Literal["keep", "strip", "basename"]


class PrivacyConfig(Section):
    """What of devices, people and developers is hashed, withheld or cut off: docs/privacy.md."""

    hash_keys: AllowList = setting(
        (),
        "Attributes of senders that are kept as a hash of their value, and only so, whether or not admission lists them: "
        "within a tenant equal values stay equal, and nobody without the salt can tell which they were.",
        rule="keys, PREFIX.* or !KEY",
    )
    salt_file: ReadableFile = setting(
        None,
        "File with the secret of the hashes, for several bridges that are to hash alike; without it each makes its own, "
        "in server.data_dir.",
        rule="a file of at least 32 bytes that can be read; needs hash_keys",
    )
    metadata_keys: MetadataKeys = setting(
        ALL,
        "Keys of delegate metadata that are shown; what has no key, such as lines and undecoded bytes, only where the list is "
        '["*"].',
        rule="keys, PREFIX*, or * for all; with ! in front it takes away",
    )
    source_paths: Annotated[SourcePaths, LowerCase] = setting(
        "strip",
        "How code.file.path shows a source file of a mapping: as the mapping has it, without the folders of the machine that "
        "made it (all before site-packages, or a home directory), or by its name alone.",
    )
