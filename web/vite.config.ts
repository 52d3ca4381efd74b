import { defineConfig } from "vite";

// Two pages, each built by its own run: `vite build --mode report` and `vite build --mode app`. The report must be one
// script, which Python puts into the file; names hold no digests, so that a diff shows what has changed.
export default defineConfig(({ mode }) => ({
  base: "./",
  publicDir: mode === "report" ? false : "public",
  build: {
    outDir: `${process.env.RECSMITH_STATIC ?? "../src/recsmith/web/static"}/${mode}`,
    emptyOutDir: true,
    cssCodeSplit: mode !== "report",
    modulePreload: false,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 2000,
    rollupOptions: {
      input: mode === "report" ? { report: "src/report/main.ts" } : "app.html",
      output: {
        format: mode === "report" ? ("iife" as const) : ("es" as const),
        entryFileNames: "[name].js",
        chunkFileNames: "[name].js",
        assetFileNames: mode === "report" ? "report[extname]" : "[name][extname]",
      },
    },
  },
}));
