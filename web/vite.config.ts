import { defineConfig } from "vite";

// Three scripts, each built by its own run: `vite build --mode charts`, `report` and `app`. Charts stand in a script of
// their own, a global that both pages read, so that a wheel holds ECharts once. Python puts charts and report into the
// file of a report. Names hold no digests, so that a diff shows what has changed.
const LIBRARY = /\/charts\/library(\.ts)?$/;
const INPUTS: Record<string, Record<string, string>> = {
  charts: { charts: "src/charts/library.ts" },
  report: { report: "src/report/main.ts" },
  app: { app: "app.html" },
};

export default defineConfig(({ mode }) => ({
  base: "./",
  publicDir: mode === "app" ? "public" : false,
  build: {
    outDir: `${process.env.RECSMITH_STATIC ?? "../src/recsmith/web/static"}/${mode === "charts" ? "app" : mode}`,
    emptyOutDir: mode !== "charts",
    cssCodeSplit: false,
    modulePreload: false,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 2000,
    rollupOptions: {
      input: INPUTS[mode],
      preserveEntrySignatures: mode === "charts" ? ("strict" as const) : false,
      external: mode === "charts" ? [] : [LIBRARY],
      output: {
        format: "iife" as const,
        name: mode === "charts" ? "RecSmithCharts" : undefined,
        globals: (id: string) => (LIBRARY.test(id) ? "RecSmithCharts" : id),
        entryFileNames: "[name].js",
        chunkFileNames: "[name].js",
        assetFileNames: `${mode}[extname]`,
      },
    },
  },
}));
