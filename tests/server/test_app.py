"""The API over HTTP: answers, errors, headers and metrics."""

import base64
import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image

from bagcert.config import write_config
from bagcert.defense import Defense
from bagcert.pictures import Framing, Pixels
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.server.app import build_app
from bagcert.server.limits import Limits
from bagcert.server.model import Model, to_images
from bagcert.server.samples import drawn_samples
from tests.onnx.conftest import NAMES, small_defense
from tests.server.conftest import HERE, LIMITS, answers_of, file_of, photos, small_client, small_model


def certify(client: TestClient, *files: bytes, **flags: bool | str) -> list[dict[str, Any]]:
    sent = [("files", ("picture", file)) for file in files]
    response = client.post("/v1/certify", files=sent, params=flags)
    assert response.status_code == 200, response.text
    answers: list[dict[str, Any]] = response.json()["answers"]
    return answers


def test_answers_come_in_the_order_of_the_files(client: TestClient, model: Model) -> None:
    answers = certify(client, *[file_of(each) for each in photos()], scores=True)
    assert 0 < sum(answer["certified"] for answer in answers) < len(answers)
    for answer, found in zip(answers, answers_of(model, photos()), strict=True):
        assert (answer["class"], answer["name"]) == (found.predicted, NAMES[found.predicted])
        assert (answer["certified"], answer["square"], answer["lead"]) == (found.certified, found.square, found.lead)
        assert answer["rival"] == found.rival and found.second is not None
        assert list(answer["weakest"].values()) == list(found.weakest) == list(answer["original"]["weakest"].values())
        assert list(answer["second"].values()) == list(found.second)
        assert answer["scores"] == found.scores.tolist()
        assert answer["original"] | {"weakest": None} == {
            "height": 12,
            "width": 12,
            "framed": False,
            "seen": {"row": 0, "column": 0, "height": 12, "width": 12},
            "patch": f"{found.square}x{found.square}" if found.square else None,
            "square": found.square,
            "weakest": None,
        }
        assert (answer["threat"], answer["threat_original"]) == ("2x2", "2x2")


def test_fail_safe_gives_no_class_without_a_proof(client: TestClient, model: Model) -> None:
    answers = certify(client, *[file_of(each) for each in photos()], fail_safe=True)
    for answer, found in zip(answers, answers_of(model, photos()), strict=True):
        given = (found.predicted, NAMES[found.predicted]) if found.certified else (None, None)
        assert (answer["class"], answer["name"]) == given
        assert answer["scores"] is None


def large(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    return np.asarray(Image.fromarray(pixels).resize(size[::-1]))


@pytest.mark.parametrize(
    ("size", "fit", "interpolation", "threat"),
    [
        ((36, 36), "crop", "box", "4x4"),
        ((70, 36), "crop", "box", "4x4"),
        ((70, 36), "squash", "box", "6x4"),
        ((24, 24), "crop", "bilinear", "1x1"),
        ((5, 5), "crop", "bilinear", None),
    ],
)
def test_other_sizes_are_framed_and_proven_in_their_own_pixels(
    size: tuple[int, int], fit: str, interpolation: str, threat: str | None
) -> None:
    defense = small_defense("logits", "two-mask")
    framing = Framing((12, 12), 12, fit=fit, interpolation=interpolation)
    model = small_model(replace(defense, card={"framing": write_config(framing)}))
    sent = large(photos()[-1], size)
    with small_client(model) as client:
        (answer,) = certify(client, file_of(sent), fail_safe=True)
        (found,) = answers_of(model, [framing.frame(Image.fromarray(sent))])
        assert found.certified and (answer["network"]["certified"], answer["lead"]) == (True, found.lead)
        assert answer["certified"] is answer["proven"] is (threat is not None)
        original = answer["original"]
        assert (original["height"], original["width"], original["framed"]) == (*size, True)
        assert (answer["threat"], answer["threat_original"], original["patch"]) == ("2x2", threat, threat)
        # If no pixel of the picture stays inside a patch, nothing is proven about it, and fail-safe mode abstains.
        assert (answer["class"] is None) == (threat is None)
        if threat is not None:
            height, width = map(int, threat.split("x"))
            assert original["square"] == min(height, width)
            for wanted, given in [(threat, True), (f"{height + 1}x1", False), (f"1x{width + 1}", False), ("1x1", True)]:
                (asked,) = certify(client, file_of(sent), fail_safe=wanted)
                assert (asked["class"] is not None) is given
        seen = client.post("/v1/frame", files={"file": file_of(sent)})
        assert seen.headers["content-type"] == "image/png"
        assert np.array_equal(np.asarray(Image.open(io.BytesIO(seen.content))), framing.frame(Image.fromarray(sent)))


def test_an_unproven_answer_may_be_proven_against_the_size_that_is_asked_for() -> None:
    model = small_model(small_defense("logits", "two-mask").against("3x3"))
    found = answers_of(model, photos())
    with small_client(model) as client:
        for wanted, least in (("1x1", 1), ("3x3", 3), ("3x4", 4)):
            answers = certify(client, *[file_of(each) for each in photos()], fail_safe=wanted)
            assert [answer["class"] is not None for answer in answers] == [each.square >= least for each in found]
        for wrong in ("yes", "0x3", "3", "3x3x3", "-1x2", "9" * 50):
            response = client.post("/v1/certify", files={"files": file_of(photos()[0])}, params={"fail_safe": wrong})
            assert response.status_code == 422 and "Write true, false or a size in the picture's" in response.text


def test_file_names_are_never_used(client: TestClient) -> None:
    for name in ("../../etc/passwd", "/dev/null", "a" * 5000, "", "nul\0.png", "C:\\x.png", "<script>"):
        sent = {"files": (name, file_of(photos()[0]), "image/png")}
        response = client.post("/v1/certify", files=sent)
        assert response.status_code in (200, 400, 422), response.text
        assert "passwd" not in response.text and "script" not in response.text


@pytest.mark.parametrize("path", ["/v1/certify", "/v1/attack"])
def test_forms_without_a_picture_are_refused(client: TestClient, path: str) -> None:
    for sent in ({}, {"content": b"x"}, {"json": [1]}, {"data": {"files": "text"}}, {"files": {"other": b"x"}}):
        response = client.post(path, **sent)
        assert response.status_code in (400, 422) and isinstance(response.json()["detail"], str)
    broken = client.post(path, content=b"--x\r\nnonsense", headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert broken.status_code in (400, 422)
    assert client.post(path, content=b"x", headers={"Content-Type": "multipart/form-data"}).status_code in (400, 422)


def test_invalid_values_are_reported_in_one_line(client: TestClient) -> None:
    picture = {"file": file_of(photos()[0])}
    for query, words in (
        ("steps=0", "Invalid value for query.steps: Input should be greater than or equal to 1."),
        ("steps=101", "Invalid value for query.steps: Input should be less than or equal to 100."),
        ("patch=5x5", "The patch 5x5 does not fit into the served 2x2, for which rule 'two-mask' has its masks."),
        ("patch=five", "Cannot read the patch 'five'. Write it like 5x5"),
        ("patch=disk:2", "Only rectangles that may lie anywhere can be shown, not disk:2. Choose one like 2x2."),
        ("patch=1x1@lower", "Only rectangles that may lie anywhere can be shown, not 1x1@lower."),
        ("patch=0x0", "The patch 0x0 does not fit into an image of 12x12"),
        ("patch=area:7919", "No rectangle inside 12x12 has an area of 7919"),
    ):
        response = client.post(f"/v1/attack?{query}", files=picture)
        assert response.status_code == 422 and words in response.json()["detail"]


def test_too_many_files_are_refused(client: TestClient) -> None:
    sent = [("files", ("p", file_of(photos()[0])))] * (LIMITS.files + 1)
    response = client.post("/v1/certify", files=sent)
    assert (
        response.status_code == 413
        and "A request may hold 1 to 24 files, but this has 25." in response.json()["detail"]
    )


def test_too_many_score_maps_are_refused(model: Model) -> None:
    with small_client(model, Limits(score_numbers=2 * 3 * 12 * 12 + 1)) as client:
        sent = [("files", ("p", file_of(photos()[0])))] * 3
        response = client.post("/v1/certify?scores=true", files=sent)
        assert response.status_code == 413
        assert "Scores are limited to 2 files per request, but this has 3." in response.json()["detail"]
        assert client.post("/v1/certify?scores=true", files=sent[:2]).status_code == 200
        assert client.post("/v1/certify", files=sent).status_code == 200


def test_too_many_bytes_are_refused_with_and_without_a_length(client: TestClient) -> None:
    known = client.post("/v1/certify", content=b"x" * (LIMITS.body_bytes + 1))
    assert known.status_code == 413 and known.headers["connection"] == "close"

    def pieces() -> Iterator[bytes]:
        yield b'--x\r\nContent-Disposition: form-data; name="files"; filename="p"\r\n\r\n'
        for _ in range(40):
            yield b"x" * 2**15

    unknown = client.post("/v1/certify", content=pieces(), headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert unknown.status_code == 413 and unknown.headers["connection"] == "close"
    assert "The request is larger than 1048576 bytes." in unknown.json()["detail"]


def test_a_full_queue_says_when_to_try_again(model: Model) -> None:
    with small_client(model, Limits(waiting_images=2)) as client:
        sent = [("files", ("p", file_of(photos()[0])))] * 3
        response = client.post("/v1/certify", files=sent)
        assert response.status_code == 503 and response.headers["retry-after"] == "1"
        assert response.json()["detail"] == "The server is busy. Try again later."
        assert client.post("/v1/certify", files=sent[:2]).status_code == 200
    with small_client(model, Limits(requests=0)) as client:
        assert client.get("/v1/model").status_code == 503
        assert client.get("/health").status_code == 200


def test_a_timeout_says_when_to_try_again(model: Model) -> None:
    with small_client(model, Limits(answer_seconds=0)) as client:
        response = client.post("/v1/certify", files={"files": file_of(photos()[0])})
        assert response.status_code == 503 and response.headers["retry-after"] == "1"


def test_decoding_counts_toward_the_timeout(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding ends only when the test does."""
    ended = threading.Event()
    monkeypatch.setattr("bagcert.server.worker.read_picture", lambda *_: ended.wait() and Image.fromarray(photos()[0]))
    with small_client(model, Limits(answer_seconds=0.01)) as client:
        for path, name in (("/v1/certify", "files"), ("/v1/attack", "file")):
            response = client.post(path, files={name: file_of(photos()[0])})
            assert response.status_code == 503 and response.headers["retry-after"] == "1"
        ended.set()


@pytest.mark.parametrize("patch", ["2x2@lower", "disk:4", "2*1x1", torch.ones(1, 12, 12, dtype=torch.bool)])
def test_threats_of_any_form_are_served_without_the_page(patch: str | torch.Tensor) -> None:
    """The page would call a patch proven wherever it sits."""
    defense = small_defense("logits", "two-mask").against(patch)
    with small_client(small_model(defense)) as client:
        response = client.post("/v1/certify", files={"files": file_of(photos()[0])}).json()
        expected = defense.certify(to_images(photos()[:1]))
        assert expected.lead is not None
        (answer,) = response["answers"]
        assert response["threat"] == str(defense.threat)
        assert (answer["class"], answer["certified"]) == (int(expected.predicted[0]), bool(expected.certified[0]))
        assert answer["lead"] == int(expected.lead[0])
        assert f"not {defense.threat}. Send pictures to /v1/certify." in client.get("/").text
        refused = client.post("/v1/attack", files={"file": file_of(photos()[0])})
        assert refused.status_code == 422 and "Only rectangles that may lie anywhere" in refused.json()["detail"]


def test_patches_of_many_shapes_are_refused_before_they_cost_time(client: TestClient) -> None:
    sides = range(1, 13)
    every = ",".join(f"{height}x{width}" for height in sides for width in sides)
    response = client.post("/v1/attack", files={"file": file_of(photos()[0])}, params={"patch": every})
    assert response.status_code == 422
    assert response.json()["detail"] == "A patch may have at most 16 shapes, but this one has 144. Attack with fewer."


@pytest.mark.parametrize("patch", [f"{'9' * 5000}x3", f"area:{'9' * 5000}", f"{'9' * 5000}%", f"0.{'9' * 5000}%"])
def test_endless_numbers_are_refused(client: TestClient, patch: str) -> None:
    response = client.post("/v1/attack", files={"file": file_of(photos()[0])}, params={"patch": patch})
    assert response.status_code == 422 and len(response.json()["detail"]) < 200


def test_a_failure_of_the_server_is_counted_and_reported(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagcert.server.app.to_answer", lambda *_: 1 / 0)
    app = build_app(model, drawn_samples((12, 12), 3), LIMITS)
    with TestClient(app, HERE, raise_server_exceptions=False) as client:
        response = client.post("/v1/certify", files={"files": file_of(photos()[0])})
        assert response.status_code == 500 and "The server failed to answer" in response.json()["detail"]
        assert response.headers["x-content-type-options"] == "nosniff"
        text = client.get("/metrics").text
    assert 'bagcert_requests_total{route="/v1/certify",status="500"} 1.0' in text


def test_a_grey_model_sees_grey() -> None:
    """One channel, 8x8, like the digits: colors become grey, and so are samples and attacked pictures."""
    scorer = ResidualScorer(ResidualConfig(classes=3, channels=1, width=4, kernels=(3,), paths=1, shake=False), (8, 8))
    model = small_model(Defense.build(scorer.eval(), "every-region", "2x2", NAMES))
    color = photos()[3][:8, :8]
    grey = np.asarray(Image.fromarray(color).convert("L"))
    with TestClient(build_app(model, drawn_samples((8, 8), 1)), HERE) as client:
        answers = certify(client, file_of(color), file_of(grey), client.get("/v1/samples/3").content, scores=True)
        assert answers[0] == answers[1] and answers[2]["original"]["framed"] is False
        (found,) = answers_of(model, [grey[:, :, None]])
        assert answers[0]["scores"] == found.scores.tolist()
        attacked = client.post("/v1/attack?steps=2", files={"file": file_of(color)}).json()
        assert Image.open(io.BytesIO(base64.b64decode(attacked["picture"]))).mode == "L"


def test_an_attack_shows_its_patch_and_never_beats_a_proof(client: TestClient, model: Model) -> None:
    for clean in photos()[::6]:
        for patch in ("1x1", "2x2"):
            response = client.post("/v1/attack", files={"file": file_of(clean)}, params={"patch": patch, "steps": 5})
            found = response.json()
            assert response.status_code == 200 and found["patch"] == patch
            painted = np.asarray(Image.open(io.BytesIO(base64.b64decode(found["picture"]))))
            place = found["placement"]
            rows, columns = (
                slice(place[start], place[start] + place[size])
                for start, size in (("row", "height"), ("column", "width"))
            )
            inside = np.zeros((12, 12), bool)
            inside[rows, columns] = True
            assert f"{place['height']}x{place['width']}" == patch
            assert np.array_equal(painted[~inside], clean[~inside])
            assert not np.array_equal(painted[inside], clean[inside])
            (before,), (after,) = answers_of(model, [clean]), answers_of(model, [painted])
            assert (found["clean"]["class"], found["attacked"]["class"]) == (before.predicted, after.predicted)
            assert found["changed"] is (before.predicted != after.predicted)
            assert found["proven"] is (before.square >= int(patch[0])) and not (found["proven"] and found["changed"])


def test_an_attack_that_wins_says_so() -> None:
    with small_client(small_model(small_defense("logits", "two-mask").against("4x4"))) as client:
        results = [
            client.post("/v1/attack", files={"file": file_of(each)}, params={"steps": 40}).json()
            for each in photos()[8:14]
        ]
    assert any(result["changed"] for result in results)
    assert all(result["steps"] <= 40 for result in results)


def test_a_token_guards_the_model(model: Model) -> None:
    with small_client(model, token="secret") as client:
        for path in ("/v1/model", "/v1/samples", "/v1/samples/0", "/metrics"):
            for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "Bearer sécret".encode()}):
                refused = client.get(path, headers=headers)  # type: ignore[arg-type]
                assert refused.headers["www-authenticate"] == "Bearer"
                assert refused.status_code == 401 and "Send 'Authorization: Bearer TOKEN'" in refused.text
            assert client.get(path, headers={"Authorization": "Bearer secret"}).status_code == 200
        assert client.post("/v1/certify").status_code == 401
        assert client.get("/").status_code == client.get("/health").status_code == 200


OWN_HOSTS = ("127.0.0.1:8000", "10.1.2.3", "[::1]:8000", "localhost", "LOCALHOST:9", "Lab.example")
OTHER_HOSTS = ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[evil]", "a:b:c")


@pytest.mark.parametrize(
    ("host", "own"), [*((host, True) for host in OWN_HOSTS), *((host, False) for host in OTHER_HOSTS)]
)
def test_a_page_of_another_site_cannot_ask_under_its_own_name(model: Model, host: str, own: bool) -> None:
    """DNS rebinding: the attacker's name points to this machine. A token is a better guard."""
    app = build_app(model, drawn_samples((12, 12), 3), LIMITS, hosts=["lab.example"])
    with TestClient(app, HERE) as client:
        response = client.get("/v1/model", headers={"Host": host})
        assert response.status_code == (200 if own else 421)
        assert own or response.json()["detail"].startswith("This server does not answer to that name.")
    with small_client(model, token="secret") as client:
        headers = {"Host": host, "Authorization": "Bearer secret"}
        assert client.get("/v1/model", headers=headers).status_code == 200


def test_two_lengths_of_one_request_are_refused(client: TestClient) -> None:
    response = client.post("/v1/certify", content=b"x", headers={"Transfer-Encoding": "chunked", "Content-Length": "1"})
    assert response.status_code == 400 and response.headers["connection"] == "close"
    assert "both Content-Length and Transfer-Encoding" in response.json()["detail"]


def test_the_model_says_what_its_proofs_mean(client: TestClient) -> None:
    about = client.get("/v1/model").json()
    found = client.post("/v1/certify", files={"files": file_of(photos()[0])}).json()
    for fact in ("rule", "threat", "arithmetic", "weights_sha256"):
        assert found[fact] == about[fact], "a proof holds for these alone"
    assert (about["rule"], about["threat"], about["classes"]) == ("two-mask", "2x2", list(NAMES))
    assert about["arithmetic"] == "torch, cpu, float32, eager, channels_last, batches of 16"
    assert (about["height"], about["width"], about["grid"]) == (12, 12, [12, 12])
    assert about["framing"] == {**write_config(Framing.usual((12, 12)))}


def test_samples_are_pictures_that_can_be_certified(client: TestClient) -> None:
    listed = client.get("/v1/samples").json()
    assert len(listed) == 12
    for entry in listed:
        picture = client.get(entry["url"])
        assert picture.headers["content-type"] == "image/png"
        (answer,) = certify(client, picture.content)
        assert answer["original"]["framed"] is False
    assert "There is no sample 12: they are numbered 0..11." in client.get("/v1/samples/12").json()["detail"]
    assert client.get("/v1/samples/x").status_code == client.get("/v1/samples/-1").status_code == 422


def test_metrics_can_be_scraped(model: Model) -> None:
    with small_client(model) as client:
        certify(client, *[file_of(each) for each in photos()[-3:]])
        client.get("/strange/path")
        text = client.get("/metrics").text
    assert 'bagcert_images_total{certified="true"} 3.0' in text
    assert 'bagcert_requests_total{route="/v1/certify",status="200"} 1.0' in text
    assert 'bagcert_requests_total{route="other",status="404"} 1.0' in text
    assert "bagcert_batch_images_sum 4.0" in text, "three, and one to warm up before any request"


def test_pages_may_load_nothing_from_elsewhere(client: TestClient) -> None:
    for path, status in (
        ("/", 200),
        ("/v1/model", 200),
        ("/nowhere", 404),
        ("/../app.py", 404),
        ("/%2e%2e/app.py", 404),
    ):
        response = client.get(path)
        assert response.status_code == status
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';") and "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
    assert client.get("/").headers["content-type"].startswith("text/html")
    assert client.get("/docs").status_code == 404


def test_wrong_methods_are_answered_with_the_right_ones(client: TestClient) -> None:
    for method, path, allowed in (("GET", "/v1/certify", "POST"), ("DELETE", "/v1/model", "GET"), ("POST", "/", "GET")):
        response = client.request(method, path)
        assert response.status_code == 405 and allowed in response.headers["allow"]


def test_openapi_describes_every_answer(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    paths = schema["paths"]
    assert {"/v1/certify", "/v1/attack", "/v1/model", "/v1/samples", "/health", "/metrics"} < set(paths)
    assert set(paths["/v1/certify"]["post"]["responses"]) == {
        *("200", "400", "401", "408", "413", "415", "421", "422", "503")
    }
    answer = schema["components"]["schemas"]["Answer"]["properties"]
    assert "class" in answer and all("description" in answer[name] for name in ("certified", "square", "lead"))
    assert "the network's pixels" in answer["certified"]["description"]
    assert "the picture's own pixels" in answer["threat_original"]["description"]
