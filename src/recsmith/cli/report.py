"""`recsmith report`."""

import click

from recsmith.cli.options import force_option, inputs_of


@click.command(name="report")
@click.argument("plan")
@click.option("--against", metavar="OTHER", help="Another plan for the same tables; shows what changed from it.")
@click.option("-o", "--output", required=True, metavar="FILE", help="The HTML file to write ('-' for stdout).")
@force_option
def command(plan: str, against: str | None, output: str, force: bool) -> None:
    """Write a page with charts of PLAN (a file, '-' for stdin): one HTML file that opens without a network.

    It shows what a step costs and how far that is from the best, where each device spends its time and its memory,
    where every shard lies, what binds the step, and what to know about the bound.

    \b
    recsmith report plan.json -o plan.html
    recsmith report plan.json --against running.json -o plan.html
    """  # noqa: D301 (click's mark that keeps the lines is one character)
    from recsmith.cli.progress import note
    from recsmith.errors import UsageError
    from recsmith.files import check_target, write_text
    from recsmith.web.report import REPORT_FILE, report_html

    if plan == "-" and against == "-":
        raise UsageError("PLAN and --against are both '-', and stdin holds one plan; give one of them as a file")
    check_target(output, inputs=inputs_of(plan, against), kind=REPORT_FILE, force=force)
    page = report_html(plan, against=against)
    if output == "-":
        click.echo(page, nl=False)
    else:
        write_text(output, page)
        note(f"written to {output}; open it in a browser")
