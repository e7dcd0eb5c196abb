harness.data("about/nvidia-h200-c23567a6", {
  "epochs": [
    {
      "suite": "matmul",
      "starts": [0],
      "epochs": [0],
      "contexts": [
        {
          "driver": "580.159.04",
          "compiler": "nvcc 13.0, V13.0.88",
          "card": "GPU-ef44157c-5d0e-a3e4-a84f-5fdcc23567a6",
          "VBIOS": "96.00.A5.00.1A",
          "power limit, W": "700",
          "ECC": "on",
          "MIG": "off",
          "method of measuring": "1",
          "L2": "cold"
        }
      ]
    }
  ],
  "runs": [
    {
      "file": "20220109T094127Z-e912142f-matmul-be70743e",
      "started_at": "2022-01-09T09:41:27+00:00",
      "suite": "matmul",
      "commit": 39,
      "hash": "e912142fe116ec7fd7ac373bd19cbf46ab233c72",
      "rows": 2,
      "failed": 0,
      "base": "163abb63ca76fc15a606ce8ea0111d823761d54e",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220109T073709Z-163abb63-matmul-6e569e0b",
      "started_at": "2022-01-09T07:37:09+00:00",
      "suite": "matmul",
      "commit": 38,
      "hash": "163abb63ca76fc15a606ce8ea0111d823761d54e",
      "rows": 2,
      "failed": 0,
      "base": "3806b889032d6eb81181dcb1e2aea8018e4b2451",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220108T233058Z-3806b889-matmul-e98f8093",
      "started_at": "2022-01-08T23:30:58+00:00",
      "suite": "matmul",
      "commit": 37,
      "hash": "3806b889032d6eb81181dcb1e2aea8018e4b2451",
      "rows": 2,
      "failed": 0,
      "base": "5f8182bf2f74f71fe0f3df05afd83c46f6f46c7d",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220108T222631Z-5f8182bf-matmul-817341a9",
      "started_at": "2022-01-08T22:26:31+00:00",
      "suite": "matmul",
      "commit": 36,
      "hash": "5f8182bf2f74f71fe0f3df05afd83c46f6f46c7d",
      "rows": 2,
      "failed": 0,
      "base": "81284fde8a0f76d4ac492247d0930d4e4dd8ad2c",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220108T163930Z-81284fde-matmul-5ce51c9d",
      "started_at": "2022-01-08T16:39:30+00:00",
      "suite": "matmul",
      "commit": 35,
      "hash": "81284fde8a0f76d4ac492247d0930d4e4dd8ad2c",
      "rows": 2,
      "failed": 0,
      "base": "b2fc66ccc5fb24d2566587331f9d8b3759d7fe97",
      "compared": 2,
      "rebuilt": [0]
    },
    {
      "file": "20220108T161756Z-b2fc66cc-matmul-8dd52b77",
      "started_at": "2022-01-08T16:17:56+00:00",
      "suite": "matmul",
      "commit": 34,
      "hash": "b2fc66ccc5fb24d2566587331f9d8b3759d7fe97",
      "rows": 2,
      "failed": 0,
      "base": "0d191633b20b54adbe871373593627827e1797e5",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220108T120349Z-0d191633-matmul-f0def0a6",
      "started_at": "2022-01-08T12:03:49+00:00",
      "suite": "matmul",
      "commit": 33,
      "hash": "0d191633b20b54adbe871373593627827e1797e5",
      "rows": 2,
      "failed": 0,
      "base": "ecd01c05280cf0aed954a42bef53ee8f5cfe29df",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220108T115914Z-ecd01c05-matmul-c90b3d15",
      "started_at": "2022-01-08T11:59:14+00:00",
      "suite": "matmul",
      "commit": 32,
      "hash": "ecd01c05280cf0aed954a42bef53ee8f5cfe29df",
      "rows": 2,
      "failed": 0,
      "base": "387020426cd53df83bb9ef5a47f49fd5de38cc9c",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220108T012539Z-38702042-matmul-33e0b770",
      "started_at": "2022-01-08T01:25:39+00:00",
      "suite": "matmul",
      "commit": 31,
      "hash": "387020426cd53df83bb9ef5a47f49fd5de38cc9c",
      "rows": 2,
      "failed": 0,
      "base": "fb9ba730e621b739b1b127339abf163e1316c2d4",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220108T002156Z-fb9ba730-matmul-78f0f950",
      "started_at": "2022-01-08T00:21:56+00:00",
      "suite": "matmul",
      "commit": 30,
      "hash": "fb9ba730e621b739b1b127339abf163e1316c2d4",
      "rows": 2,
      "failed": 0,
      "base": "4a329de368c45ba794eab4b8e4fc592ae7e9a063",
      "compared": 2,
      "rebuilt": [0]
    },
    {
      "file": "20220107T125901Z-4a329de3-matmul-12f891e2",
      "started_at": "2022-01-07T12:59:01+00:00",
      "suite": "matmul",
      "commit": 29,
      "hash": "4a329de368c45ba794eab4b8e4fc592ae7e9a063",
      "rows": 2,
      "failed": 0,
      "base": "24e78fe8d254ac727eb2001113834f98be16addc",
      "compared": 2,
      "rebuilt": [1]
    },
    {
      "file": "20220107T102008Z-24e78fe8-matmul-86b14e00",
      "started_at": "2022-01-07T10:20:08+00:00",
      "suite": "matmul",
      "commit": 28,
      "hash": "24e78fe8d254ac727eb2001113834f98be16addc",
      "rows": 2,
      "failed": 0,
      "base": "194b74837e1d84bef2dc408180e66f7e04eb17a9",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220107T084558Z-194b7483-matmul-f86b67ce",
      "started_at": "2022-01-07T08:45:58+00:00",
      "suite": "matmul",
      "commit": 27,
      "hash": "194b74837e1d84bef2dc408180e66f7e04eb17a9",
      "rows": 2,
      "failed": 0,
      "base": "45f2b6f0435465f988a1afc8cb691398ab8d1d1e",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220107T073309Z-45f2b6f0-matmul-95bc8d20",
      "started_at": "2022-01-07T07:33:09+00:00",
      "suite": "matmul",
      "commit": 26,
      "hash": "45f2b6f0435465f988a1afc8cb691398ab8d1d1e",
      "rows": 2,
      "failed": 0,
      "base": "90139ecca2e0441621921a508c441129760c44dc",
      "compared": 2,
      "rebuilt": [0]
    },
    {
      "file": "20220107T064753Z-90139ecc-matmul-66309927",
      "started_at": "2022-01-07T06:47:53+00:00",
      "suite": "matmul",
      "commit": 25,
      "hash": "90139ecca2e0441621921a508c441129760c44dc",
      "rows": 2,
      "failed": 0,
      "base": "88f62a14f629bf31cdffbddcbf81f27e428c5ed4",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220106T183025Z-88f62a14-matmul-56dd16dc",
      "started_at": "2022-01-06T18:30:25+00:00",
      "suite": "matmul",
      "commit": 24,
      "hash": "88f62a14f629bf31cdffbddcbf81f27e428c5ed4",
      "rows": 2,
      "failed": 0,
      "base": "dc09e5a7891fbdd1768af465e03bb7105fc39e5d",
      "compared": 2,
      "rebuilt": [0]
    },
    {
      "file": "20220106T181718Z-dc09e5a7-matmul-88aa70fd",
      "started_at": "2022-01-06T18:17:18+00:00",
      "suite": "matmul",
      "commit": 23,
      "hash": "dc09e5a7891fbdd1768af465e03bb7105fc39e5d",
      "rows": 2,
      "failed": 0,
      "base": "9540d2c9806c2e498bc5766cc5d937757c06f0fe",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220106T134123Z-9540d2c9-matmul-924625d7",
      "started_at": "2022-01-06T13:41:23+00:00",
      "suite": "matmul",
      "commit": 22,
      "hash": "9540d2c9806c2e498bc5766cc5d937757c06f0fe",
      "rows": 2,
      "failed": 0,
      "base": "49b5ed8c78f6e1196d8cc01fc3a8bbcadaa646ac",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220106T122221Z-49b5ed8c-matmul-8d9baa08",
      "started_at": "2022-01-06T12:22:21+00:00",
      "suite": "matmul",
      "commit": 21,
      "hash": "49b5ed8c78f6e1196d8cc01fc3a8bbcadaa646ac",
      "rows": 2,
      "failed": 0,
      "base": "823523daa7d68bdf28b36d99305906d9b882563e",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220106T120628Z-823523da-matmul-3de558a8",
      "started_at": "2022-01-06T12:06:28+00:00",
      "suite": "matmul",
      "commit": 20,
      "hash": "823523daa7d68bdf28b36d99305906d9b882563e",
      "rows": 2,
      "failed": 0,
      "base": "3e2ca07bfffe9b03c59abeb051e7c2c12534b2ab",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220106T060418Z-3e2ca07b-matmul-8fb42ac8",
      "started_at": "2022-01-06T06:04:18+00:00",
      "suite": "matmul",
      "commit": 19,
      "hash": "3e2ca07bfffe9b03c59abeb051e7c2c12534b2ab",
      "rows": 2,
      "failed": 0,
      "base": "cd20c4abef9ddef183fd41a676a18a4b8aa971ba",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220106T051753Z-cd20c4ab-matmul-8108b58f",
      "started_at": "2022-01-06T05:17:53+00:00",
      "suite": "matmul",
      "commit": 18,
      "hash": "cd20c4abef9ddef183fd41a676a18a4b8aa971ba",
      "rows": 2,
      "failed": 0,
      "base": "81e1aeae542c1c4f41e9a9db80fc6c042905f2a2",
      "compared": 2,
      "rebuilt": [0]
    },
    {
      "file": "20220106T050951Z-81e1aeae-matmul-6a6e36c3",
      "started_at": "2022-01-06T05:09:51+00:00",
      "suite": "matmul",
      "commit": 17,
      "hash": "81e1aeae542c1c4f41e9a9db80fc6c042905f2a2",
      "rows": 2,
      "failed": 0,
      "base": "bac6890d9c5862f619fd069d312b46b927d1b161",
      "compared": 2,
      "rebuilt": []
    },
    {
      "file": "20220105T212740Z-bac6890d-matmul-8095c54b",
      "started_at": "2022-01-05T21:27:40+00:00",
      "suite": "matmul",
      "commit": 16,
      "hash": "bac6890d9c5862f619fd069d312b46b927d1b161",
      "rows": 2,
      "failed": 0,
      "base": "",
      "compared": 0,
      "rebuilt": []
    }
  ],
  "problem_changes": []
}
);
