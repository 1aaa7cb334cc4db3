"""Which parts of an upload that was cut off are kept, which upload is gone on with, and what is given up."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as some

from peerloom.artifacts.part_rules import ListedPart, LocalPart, OpenUpload, abandoned, kept_parts, newest_of

# The MD5 of "a" and of "b", and what a bucket says that encrypts with keys of a KMS.
MD5_OF_A, MD5_OF_B = "0cc175b9c0f1b6a831c399e269772661", "92eb5ffee6ae2fec3ad71c777531578f"
BEGUN_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
NUMBERS, SIZES, MD5S = some.integers(1, 5), some.integers(1, 3), some.sampled_from([MD5_OF_A, MD5_OF_B])
LOCAL = some.dictionaries(NUMBERS, some.builds(LocalPart, SIZES, MD5S))
THERE = some.dictionaries(
    NUMBERS, some.tuples(SIZES, MD5S | some.sampled_from([f'"{MD5_OF_A}"', "", f"{MD5_OF_A}-2"]))
).map(lambda found: [ListedPart(number, size, etag) for number, (size, etag) in found.items()])


def upload(upload_id: str, hours: float = 0.0) -> OpenUpload:
    return OpenUpload("bucket", "key", upload_id, BEGUN_AT + timedelta(hours=hours))


@given(THERE, LOCAL)
def test_a_part_is_kept_if_and_only_if_it_has_size_and_digest_of_the_bytes_here(
    there: list[ListedPart], local: dict[int, LocalPart]
) -> None:
    kept = kept_parts(there, local)
    by_number = {part.number: part for part in there}
    for number in range(1, 6):
        part, here = by_number.get(number), local.get(number)
        if part is None or here is None or part.size_bytes != here.size_bytes:
            assert number not in kept
        elif part.etag in (here.md5, f'"{here.md5}"'):
            assert kept[number] == part.etag, "as the bucket calls it"
        else:
            assert number not in kept


def test_what_is_beyond_the_files_end_and_what_a_kms_encrypts_is_not_kept() -> None:
    local = {1: LocalPart(1, MD5_OF_A)}
    encrypted = '"b4d5c0ffee00b4d5c0ffee00b4d5c0ff"'
    assert kept_parts([ListedPart(1, 1, encrypted), ListedPart(2, 1, f'"{MD5_OF_A}"')], local) == {}
    assert kept_parts([ListedPart(1, 1, f'"{MD5_OF_A}"')], local) == {1: f'"{MD5_OF_A}"'}


def test_the_upload_begun_last_is_gone_on_with_and_of_equals_the_last_listed() -> None:
    assert newest_of([]) is None
    assert newest_of([upload("a", 1), upload("b", 3), upload("c", 2)]) == upload("b", 3)
    assert newest_of([upload("a", 1), upload("b", 1)]) == upload("b", 1)


def test_an_upload_is_given_up_after_a_week() -> None:
    now_s = BEGUN_AT.timestamp()
    weeks_old = [upload("a", -7 * 24 - 1), upload("b", -7 * 24 + 1), upload("c")]
    assert abandoned(weeks_old, now_s) == [upload("a", -7 * 24 - 1)]
