"""Which data our tables were made with, where what a machine can have may differ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pinned:
    """sha256: of the data set. versions: what it came from, in words."""

    sha256: str
    versions: str


# Sources that are not named here refuse whatever differs.
PINNED: dict[str, Pinned] = {
    "digits": Pinned("0b7e9c3202d7bcd255d6a19a238d3743bf5e320ba74812a6679958a017c55382", "scikit-learn 1.9.1"),
    "emoji": Pinned(
        "17373f19f05fc56dbf58a2beafdec127e2fc1a23e2eb7882b0b7bba79eab6d24",
        "emoji-datasource-google 16.0.0, emoji-datasource-twitter 16.0.0, emojione 2.2.7",
    ),
    "clip-art": Pinned(
        "baf37a408d8eda32b764735eada5b6b1a183080d6494c6c043d950741f53d2f8",
        "Debian 12: openclipart-png 1:0.18+dfsg-19",
    ),
    "icons": Pinned(
        "13ed61cbd1be7af48602f0b51f5949af8a1ad36717b55fb7431856b917dfe003",
        "Debian 12: gnome-icon-theme 3.12.0-5, mate-icon-theme 1.26.0-1, adwaita-icon-theme 43-1, "
        "gnome-colors-common 5.5.1-2.1, tango-icon-theme 0.8.90-11, gnome-accessibility-themes 3.28-2, "
        "faenza-icon-theme 1.3.1-3, lxde-icon-theme 0.5.1-2.1, yaru-theme-icon 22.10.3-1, moka-icon-theme 5.5.0-2, "
        "paper-icon-theme 1.5.0+git20200312.aa3e8af-4, oxygen-icon-theme 5:5.103.0-1, "
        "elementary-xfce-icon-theme 0.17-1, ukui-themes 3.0.3-1",
    ),
    "hebrew": Pinned(
        "5533859dca40d35b7dde4fb288abe48c54bac7e803902a87928b540474274fa2",
        "Debian 12: culmus 0.133-1, culmus-fancy 0.0.20140315-1, fonts-sil-ezra 2.51-9, fonts-ldco 1.0.0.part3-1.1",
    ),
    "thai": Pinned(
        "3d22f5823feec54921bb32761a469566349998ba915a42adb583812add56015c",
        "Debian 12: fonts-arundina 0.3.2-1, fonts-tlwg-* 1:0.7.3-1",
    ),
}
