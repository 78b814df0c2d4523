<?php
HEAD
const VERSION = "@VERSION", MODE = "@MODE";
$path = explode("/", parse_url($_SERVER["REQUEST_URI"], PHP_URL_PATH));
switch ($path[1]) {
    case "":
        if (MODE === "fails" || (MODE === "half" && random_int(0, 1) === 0)) {
            throw new Exception("broken on purpose");
        }
        header("Content-Length: " . strlen(VERSION));
        echo VERSION;
        break;
    case "work":
        usleep(MODE === "slow" ? 600000 : 100000);
        echo VERSION;
        break;
    case "up":
        $body = fopen("php://input", "r");
        $total = 0;
        while (($piece = fread($body, 65536)) !== "" && $piece !== false) {
            $total += strlen($piece);
        }
        echo $total;
        break;
    case "down":
        $piece = str_repeat("x", 65536);
        for ($n = 0; $n < (int) $path[2] * 16; $n++) {
            echo $piece;
            flush();
        }
        break;
    case "events":
        header("Content-Type: text/event-stream");
        while (true) {
            echo "data: ", VERSION, "\n\n";
            flush();
            usleep(100000);
        }
}
