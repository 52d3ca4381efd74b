import { Chart } from "../charts/chart";
import { deviceTimes } from "../charts/deviceTimes";
import { memoryBars } from "../charts/memoryBars";
import { blocksOf, shardMap, shardsOf } from "../charts/shardMap";
console.log(Chart, deviceTimes, memoryBars, blocksOf, shardMap, shardsOf);
