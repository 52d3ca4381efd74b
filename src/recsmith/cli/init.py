"""`recsmith init`."""

import click

from recsmith.cli.options import force_option
from recsmith.cli.printing import note


@click.command(name="init")
@click.argument("data")
@click.option("-o", "--output", metavar="FILE", default="run.yaml", show_default=True, help="The run; - is stdout.")
@click.option("--label", metavar="COLUMN", help="The column of labels (default: guessed).")
@force_option
def init_command(data: str, output: str, label: str | None, force: bool) -> None:
    """Look at data and write a run file for it, with a comment on each column.

    DATA is CSV (.csv), JSON lines (.jsonl) or Parquet, a folder of such files, or anything else that `recsmith data`
    reads. The run file is a draft: read its comments, correct what they got wrong, and train.

    \b
    recsmith init clicks.csv
    recsmith init days/ --label clicked -o first.yaml
    """
    from recsmith.advising.drafting import drafted_run
    from recsmith.files import check_target, write_text

    check_target(output, inputs=[data], kind=b"# A draft for ", force=force)
    text = drafted_run(data, "run.yaml" if output == "-" else output, label)
    if output == "-":
        click.echo(text, nl=False)
        return
    write_text(output, text)
    steps = [f"recsmith data vocabulary {output} -o vocabularies"] if "vocabulary:" in text else []
    note(f"written to {output}; read it, and then: {'; '.join([*steps, f'recsmith train {output} --dry-run'])}")
