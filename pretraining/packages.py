"""The packages the images come from, and their download into a cache folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from fpet.data import emoji
from fpet.data.debian import package_folder
from fpet.data.npm import NpmPackage, npm_folder
from fpet.errors import DataError

PICTURE_PACKAGES = (
    "openclipart-png",
    "tuxpaint-stamps-default",
    "oxygen-icon-theme",
    "gnome-icon-theme",
    "tango-icon-theme",
)
ICON_SETS = NpmPackage(
    "@iconify/json",
    "2.2.535",
    "sha512-nAV60ACUSHwnsb6fsp+letHlNkrwO4vzBtcC6B4EDHErQQfezk7E3nJdnwJjve6OCfMNO0uVT5Vrgna9/NCmXw==",
    ("collections.json", "json/"),
)
EMOJI_PACKAGES = {artist: emoji.PACKAGES[artist] for artist in ("google", "twitter")}
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
    """Downloads and unpacks every package into `cache/raw/<package>`; one that cannot be had is named and skipped."""
    raw = cache / "raw"
    getters = [
        *(partial(package_folder, package, "usr/share", None, raw) for package in (*PICTURE_PACKAGES, *FONT_PACKAGES)),
        *(partial(npm_folder, package, None, raw) for package in (*EMOJI_PACKAGES.values(), ICON_SETS)),
    ]
    for get in getters:
        try:
            get()
        except DataError as error:
            print(f"skipped: {error}", flush=True)
