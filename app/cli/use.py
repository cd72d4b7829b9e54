"""`specchat models use`: choose the model that is opened from now on."""

from __future__ import annotations

import click

from app.config import load_config
from app.locations import locate
from app.models.choosing import ABOUT_EMBEDDED, choose
from app.models.memory import available, short_of
from app.models.own import EMBEDDED
from app.options import Options
from app.sanitise import one_line

LINE = 2000


@click.command()
@click.argument("name")
@click.pass_obj
def use(options: Options, name: str) -> None:
    """Open the model NAME from now on; chats and imports stay.

    NAME is one that `specchat models` lists, or the path of a GGUF file. `embedded` is the model
    that comes with specchat.
    """
    locations = locate(options.data_dir)
    model = choose(name, locations)
    click.echo(one_line(f"specchat opens {model.name} from now on", LINE))
    if model.name == EMBEDDED:
        click.echo(ABOUT_EMBEDDED)
    shortage = short_of(model.path, load_config(locations.settings).context, available())
    if shortage:
        click.echo(one_line(f"but not now: {shortage}", LINE), err=True)
