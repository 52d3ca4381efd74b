// The parts of ECharts that the pages use, built once (charts.js) and shared by both.

import { BarChart, CustomChart, LineChart } from "echarts/charts";
import { GridComponent, MarkLineComponent, TooltipComponent } from "echarts/components";
import { init, use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

use([BarChart, CustomChart, LineChart, GridComponent, MarkLineComponent, TooltipComponent, CanvasRenderer]);

export { init };
