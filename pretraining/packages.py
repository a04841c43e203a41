"""The packages the images come from, and their download into a cache folder."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

PICTURE_PACKAGES = (
    "openclipart-png",
    "tuxpaint-stamps-default",
    "oxygen-icon-theme",
    "gnome-icon-theme",
    "tango-icon-theme",
)
EMOJI_PACKAGES = ("emoji-datasource-google", "emoji-datasource-twitter")
FONT_PACKAGES = tuple(
    f"fonts-{name}"
    for name in """
    3270 adf-accanthis adf-baskervald adf-berenis adf-gillius adf-ikarius adf-irianis adf-libris adf-mekanus
    adf-oldania adf-romande adf-solothurn adf-switzera adf-tribun adf-universalis adf-verana aenigma agave allerta
    anonymous-pro aoyagi-soseki arapey averia-gwf averia-sans-gwf averia-serif-gwf b612 bajaderka bebas-neue beteckna
    blankenburg breip bwht cabin cabinsketch cantarell century-catalogue cherrybomb cmu comfortaa comic-neue compagnon
    courier-prime crosextra-caladea crosextra-carlito dancingscript dejavu-core dejavu-extra dkg-handwriting dosis
    dotgothic16 dustin ebgaramond ecolier-court elstob engadget essays1743 eurofurence evertype-conakry f500
    fantasque-sans fanwood femkeklaver firacode freefont-ttf georgewilliams gfs-artemisia gfs-baskerville
    gfs-bodoni-classic gfs-complutum gfs-didot gfs-didot-classic gfs-gazis gfs-neohellenic gfs-olga gfs-porson
    gfs-solomos gfs-theokritos gnutypewriter go gotico-antiqua goudybookletter hack-ttf havana hermit horai-umefont
    humor-sans inconsolata inter ipaexfont-gothic ipaexfont-mincho isabella jetbrains-mono johnsmith-induni joscelyn
    junction junicode jura karla karmilla kaushanscript klaudia-berenika klee kouzan-mouhitsu kristi lato le-murmure
    league-mono league-spartan leckerli-one lemonada levien-museum levien-typoscript liberation2 lindenhill linex
    linuxlibertine lobster lobstertwo manrope millimetre misaki monofur monoid-tight mononoki motoya-l-maruberi
    national-park noto-mono ocr-a ocr-b okolaks oldstandard open-sans opendin opendyslexic osifont paratype play
    prociono quattrocento quicksand radisnoir rampart reggae roadgeek roboto-slab roboto-unhinted rocknroll
    routed-gothic rufscript sawarabi-gothic sawarabi-mincho seto sil-andika sil-charis sil-doulos sil-galatia
    sil-gentiumplus sil-sophia-nubian smiley-sans solide-mirage sora staypuft stick stix summersby texgyre tiresias
    tomsontalks tuffy ubuntu-title uralic urw-base35 vollkorn yanone-kaffeesatz yozvox-yozfont yrsa-rasa yusei-magic
    """.split()  # noqa: SIM905
)


def fetch(cache: Path) -> None:
    """Downloads and unpacks every package into `cache/raw/<package>`; one that fails is named and skipped."""
    downloads, raw = cache / "downloads", cache / "raw"
    downloads.mkdir(parents=True, exist_ok=True)
    raw.mkdir(parents=True, exist_ok=True)
    for package in (*PICTURE_PACKAGES, *FONT_PACKAGES):
        _fetch_one(package, "deb", ["apt-get", "download", "-q", package], downloads, raw)
    for package in EMOJI_PACKAGES:
        _fetch_one(package, "tgz", ["npm", "pack", "--silent", package], downloads, raw)


def _fetch_one(package: str, kind: str, command: list[str], downloads: Path, raw: Path) -> None:
    target = raw / package
    if target.is_dir():
        return
    try:
        archive = _archive(package, kind, downloads)
        if archive is None:
            subprocess.run(command, cwd=downloads, check=True, capture_output=True)
            archive = _archive(package, kind, downloads)
        if archive is None:
            raise FileNotFoundError(f"the download left no .{kind} file")
        _unpack(archive, target)
    except (OSError, subprocess.CalledProcessError, tarfile.TarError) as error:
        print(f"skipped {package}: {error}", flush=True)


def _archive(package: str, kind: str, downloads: Path) -> Path | None:
    pattern = f"{package}_*.deb" if kind == "deb" else f"{package}-[0-9]*.tgz"
    return next(iter(sorted(downloads.glob(pattern))), None)


def _unpack(archive: Path, target: Path) -> None:
    partial = target.with_name(target.name + ".partial")
    partial.mkdir(exist_ok=True)
    if archive.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", str(archive), str(partial)], check=True, capture_output=True)
    else:
        with tarfile.open(archive) as tar:
            wanted = (m for m in tar if "/64/" in m.name or m.name.endswith("emoji.json"))
            tar.extractall(partial, members=wanted, filter="data")
    partial.rename(target)
