// Colours and type of the charts, from the variables of the page's style sheet (style/theme.css).

export interface Theme {
  ink: string;
  muted: string;
  line: string;
  surface: string;
  accent: string;
  bound: string;
  font: string;
  /** The colour of a series by its name, such as `forward-compute` or `table-wise`: the variable `--chart-<name>`. */
  series: (name: string) => string;
}

export function themeOf(element: Element = document.body): Theme {
  const style = getComputedStyle(element);
  const read = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: read("ink"), muted: read("muted"), line: read("line"), surface: read("surface"), accent: read("accent"),
    bound: read("bound"), font: style.fontFamily, series: (name) => read(`chart-${name}`),
  };
}
